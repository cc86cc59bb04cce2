// SPDX-License-Identifier: BSD-3-Clause
// primes - the sieve of Eratosthenes in a vector that may be larger than memory: `primes LIMIT`.
// Prints the number of primes up to LIMIT and the largest one. For example,
// `UMMAP_MEM_LIMIT=64M primes 1000000000` uses a vector of 1 GB in 64 MiB of memory.
#include <umallocator.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

// Numbers in one block. The program marks the multiples of all small primes in one block before it
// continues with the next one, so that only one block has to be in memory.
static constexpr std::size_t block_numbers = std::size_t(1) << 22;

static std::vector<std::size_t> small_primes(std::size_t limit)
{
	std::vector<bool> composite(limit + 1);
	std::vector<std::size_t> primes;

	for (std::size_t n = 2; n <= limit; n++) {
		if (composite[n])
			continue;
		primes.push_back(n);
		for (std::size_t m = n * n; m <= limit; m += n)
			composite[m] = true;
	}
	return primes;
}

int main(int argc, char **argv)
{
	std::size_t limit = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100000000;
	std::size_t root = 1, count = 0, last = 0;

	try {
		std::vector<std::uint8_t, umallocator<std::uint8_t>> composite(limit + 1);

		while (root * root <= limit)
			root++;
		for (std::size_t from = 0; from <= limit; from += block_numbers) {
			std::size_t end = std::min(from + block_numbers, limit + 1);

			for (std::size_t p : small_primes(root)) {
				std::size_t first = std::max(p * p, (from + p - 1) / p * p);

				for (std::size_t m = first; m < end; m += p)
					composite[m] = 1;
			}
		}
		for (std::size_t n = 2; n <= limit; n++) {
			if (!composite[n]) {
				count++;
				last = n;
			}
		}
	} catch (const std::exception &error) {
		std::fprintf(stderr, "primes: %s: %s\n", error.what(), umalloc_errormsg());
		return 1;
	}
	std::printf("%zu primes up to %zu, the largest is %zu\n", count, limit, last);
	return 0;
}
