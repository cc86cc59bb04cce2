/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umallocator.hpp - containers larger than memory: std::vector<double, umallocator<double>>. C++17; see umallocator(3).
 *
 * An umheap is a heap of umalloc.h that ends with its object. An umallocator allocates from a heap, which has to live as long as
 * what was allocated; one that was given none has the process's, which never ends.
 */
#ifndef UMALLOCATOR_HPP
#define UMALLOCATOR_HPP

#include <cerrno>
#include <cstddef>
#include <limits>
#include <new>
#include <system_error>
#include <type_traits>
#include <umalloc.h>

class umheap {
public:
	/* As umalloc_create. Throws std::system_error with the library's sentence. */
	explicit umheap(std::size_t size, const char *uri = nullptr, const ummap_attr *attr = nullptr)
		: heap_(umalloc_create(uri, size, attr))
	{
		if (!heap_)
			throw std::system_error(errno, std::generic_category(), umalloc_errormsg());
	}
	~umheap() { umalloc_destroy(heap_); }
	umheap(const umheap &) = delete;
	umheap &operator=(const umheap &) = delete;

	umalloc_heap *get() const noexcept { return heap_; }

	/* The process's: 1 TiB, in a file that has no name and takes the space of what has left memory. */
	static umheap &common()
	{
		static umheap &heap = *new umheap(std::size_t(1) << 40);
		return heap;
	}

private:
	umalloc_heap *heap_;
};

template <class T> class umallocator {
public:
	using value_type = T;
	/* Containers keep the heap of their elements when they are assigned, and change it when they are moved or swapped. */
	using propagate_on_container_move_assignment = std::true_type;
	using propagate_on_container_swap = std::true_type;
	using is_always_equal = std::false_type;

	umallocator() : heap_(umheap::common().get()) {}
	umallocator(const umheap &heap) noexcept : heap_(heap.get()) {}
	explicit umallocator(umalloc_heap *heap) noexcept : heap_(heap) {}
	template <class U> umallocator(const umallocator<U> &other) noexcept : heap_(other.heap()) {}

	T *allocate(std::size_t n)
	{
		void *memory;

		if (n > std::numeric_limits<std::size_t>::max() / sizeof(T))
			throw std::bad_array_new_length();
		if constexpr (alignof(T) > alignof(std::max_align_t))
			memory = ualigned_alloc(heap_, alignof(T), n * sizeof(T));
		else
			memory = umalloc(heap_, n * sizeof(T));
		if (!memory)
			throw std::bad_alloc();
		return static_cast<T *>(memory);
	}
	void deallocate(T *memory, std::size_t) noexcept { ufree(heap_, memory); }

	umalloc_heap *heap() const noexcept { return heap_; }

private:
	umalloc_heap *heap_;
};

template <class T, class U> bool operator==(const umallocator<T> &a, const umallocator<U> &b) noexcept
{
	return a.heap() == b.heap();
}

template <class T, class U> bool operator!=(const umallocator<T> &a, const umallocator<U> &b) noexcept
{
	return !(a == b);
}

#endif
