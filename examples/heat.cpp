/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heat - computes the spread of heat over a plate that is larger than memory:
 * `heat FILE [STEPS [ROWS]]`.
 *
 * The plate is a file of rows of 1024 doubles, of which 16 MiB are in memory at a time. A run
 * continues from the state of the last one. The program shows these parts of ummap.hpp: a mapping
 * that ends with its scope, spans, a limit, advice, and exceptions.
 */
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <ummap.hpp>
#include <vector>

static constexpr std::size_t columns = 1024;

/* Computes one time step from the first row to the last. The previous values of the current row and
 * of the row above are in ordinary memory. */
static void compute_step(um::span<double> plate)
{
	std::vector<double> above(plate.begin(), plate.begin() + columns), here;

	for (std::size_t at = columns; at + columns < plate.size(); at += columns) {
		um::span<double> row = plate.subspan(at, columns);
		here.assign(row.begin(), row.end());
		for (std::size_t i = 1; i + 1 < columns; i++)
			row[i] = (above[i] + here[i - 1] + here[i + 1] +
				  plate[at + columns + i]) / 4;
		above.swap(here);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		std::fprintf(stderr, "usage: heat FILE [STEPS [ROWS]]\n");
		return 2;
	}
	int steps = argc > 2 ? std::atoi(argv[2]) : 10;
	std::size_t rows = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 4096;

	try {
		um::options options;
		options.limit = 16 << 20;
		um::mapping file = um::mapping::file(argv[1], um::mode::create,
						     rows * columns * sizeof(double), options);
		um::span<double> plate = file.as<double>();

		file.advise(um::advice::sequential);
		for (std::size_t i = 0; i < columns; i++)
			plate[i] = 100;
		for (int i = 0; i < steps; i++)
			compute_step(plate);
		double sum = std::accumulate(plate.begin(), plate.end(), 0.0);
		file.close();
		std::printf("after %d steps: %.6f degrees on average\n", steps,
			    sum / (rows * columns));
	} catch (const std::system_error &error) {
		std::fprintf(stderr, "heat: %s\n", error.what());
		return 1;
	}
	return 0;
}
