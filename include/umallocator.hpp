/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umallocator.hpp - containers larger than memory, such as
 * std::vector<double, umallocator<double>>. For C++17 and later; see umallocator(3).
 *
 * An umheap owns a heap of umalloc.h, and ends it when the object is destroyed. An umallocator
 * allocates from a heap, which must live as long as the allocations. A default-constructed
 * umallocator uses a heap of the whole process, which never ends.
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
	/* Creates a heap; the arguments are those of umalloc_create. Throws std::system_error with
	 * the library's error message. */
	explicit umheap(std::size_t size, const char *uri = nullptr,
			const ummap_attr *attr = nullptr)
		: heap_(umalloc_create(uri, size, attr))
	{
		if (!heap_)
			throw std::system_error(errno, std::generic_category(),
						umalloc_errormsg());
	}
	~umheap() { umalloc_destroy(heap_); }
	umheap(const umheap &) = delete;
	umheap &operator=(const umheap &) = delete;

	/* Returns the heap for the calls of umalloc.h. */
	umalloc_heap *get() const noexcept { return heap_; }

	/* Returns the heap of the process: 1 TiB in an unlinked file, created at the first call.
	 * The file takes disk space only for segments that were written to it. Throws as the
	 * constructor does. */
	static umheap &common()
	{
		static umheap &heap = *new umheap(std::size_t(1) << 40);
		return heap;
	}

private:
	umalloc_heap *heap_;
};

/* Allocator for containers of the standard library. allocate() throws std::bad_alloc, or
 * std::bad_array_new_length if the size exceeds that of any object. */
template <class T> class umallocator {
public:
	using value_type = T;
	/* A container keeps its heap when another one is copied to it. A container that is moved or
	 * swapped takes its heap along. */
	using propagate_on_container_move_assignment = std::true_type;
	using propagate_on_container_swap = std::true_type;
	using is_always_equal = std::false_type;

	umallocator() : heap_(umheap::common().get()) {}
	umallocator(const umheap &heap) noexcept : heap_(heap.get()) {}
	explicit umallocator(umalloc_heap *heap) noexcept : heap_(heap) {}
	template <class U> umallocator(const umallocator<U> &other) noexcept : heap_(other.heap())
	{
	}

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

	/* Returns the heap from which this allocator allocates. */
	umalloc_heap *heap() const noexcept { return heap_; }

private:
	umalloc_heap *heap_;
};

template <class T, class U>
bool operator==(const umallocator<T> &a, const umallocator<U> &b) noexcept
{
	return a.heap() == b.heap();
}

template <class T, class U>
bool operator!=(const umallocator<T> &a, const umallocator<U> &b) noexcept
{
	return !(a == b);
}

#endif
