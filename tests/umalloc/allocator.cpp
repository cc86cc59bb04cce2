// SPDX-License-Identifier: BSD-3-Clause
// Containers of the standard library in heaps, in a budget smaller than their contents.
#include <umallocator.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define check(cond) ((cond) ? (void)0 : fail(#cond, __LINE__))

static void fail(const char *what, int line)
{
	std::fprintf(stderr, "allocator.cpp:%d: failed: %s (%s)\n", line, what, umalloc_errormsg());
	std::exit(1);
}

static std::uint64_t allocated(const umheap &heap)
{
	struct umalloc_stats stats = {};

	stats.struct_size = sizeof(stats);
	check(umalloc_stats(heap.get(), &stats) == 0);
	return stats.allocated;
}

static void vectors()
{
	umheap heap(std::size_t(4) << 30);
	std::vector<double, umallocator<double>> v(heap), w(heap);

	for (std::size_t i = 0; i < 8000000; i++)
		v.push_back(double(i % 1000003));
	w = v;
	std::sort(w.begin(), w.end());
	check(std::is_sorted(w.begin(), w.end()));
	check(std::accumulate(v.begin(), v.end(), 0.0) == std::accumulate(w.begin(), w.end(), 0.0));
	check(allocated(heap) >= 16000000 * sizeof(double));
	v.clear();
	v.shrink_to_fit();
	w = decltype(w)(heap);
	check(allocated(heap) < (std::size_t(1) << 20));
}

static void others()
{
	using text = std::basic_string<char, std::char_traits<char>, umallocator<char>>;
	umheap heap(std::size_t(1) << 30);
	umallocator<std::pair<const int, text>> in(heap);
	std::map<int, text, std::less<int>, umallocator<std::pair<const int, text>>> map(in);
	std::unordered_map<int, int, std::hash<int>, std::equal_to<int>,
			   umallocator<std::pair<const int, int>>> hash(heap);
	std::list<int, umallocator<int>> list(heap);

	for (int i = 0; i < 100000; i++) {
		map.emplace(i, text(std::size_t(i % 100), 'x', umallocator<char>(heap)));
		hash[i] = 2 * i;
		list.push_front(i);
	}
	for (int i = 0; i < 100000; i += 7)
		check(map.at(i).size() == std::size_t(i % 100) && hash.at(i) == 2 * i);
	check(list.size() == 100000 && list.front() == 99999);
}

static void heaps()
{
	umheap one(std::size_t(64) << 20), two(std::size_t(64) << 20);
	std::vector<int, umallocator<int>> a(1000, 1, one), b(2000, 2, two), c;

	check(a.get_allocator() != b.get_allocator());
	check(umallocator<char>(one) == umallocator<long>(one));
	std::swap(a, b);
	check(a.size() == 2000 && a.get_allocator() == umallocator<int>(two));
	c = std::move(a);
	check(c.get_allocator() == umallocator<int>(two) && c[1999] == 2);
	a = std::vector<int, umallocator<int>>(3);
	check(a.get_allocator() == umallocator<int>() && a[2] == 0);
}

struct alignas(4096) page {
	char bytes[4096];
};

static void limits()
{
	umheap heap(std::size_t(16) << 20);
	std::vector<page, umallocator<page>> pages(3, heap);
	bool thrown = false;

	check(reinterpret_cast<std::uintptr_t>(pages.data()) % 4096 == 0);
	try {
		pages.resize(1 << 20);
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	check(thrown && pages.size() == 3);
	thrown = false;
	try {
		umheap none(0);
	} catch (const std::system_error &error) {
		thrown = error.code() == std::errc::invalid_argument;
	}
	check(thrown);
}

int main()
{
	vectors();
	others();
	heaps();
	limits();
	return 0;
}
