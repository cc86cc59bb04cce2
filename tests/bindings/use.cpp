/* SPDX-License-Identifier: BSD-3-Clause */
/* A test of ummap.hpp: mappings, spans, pins, moves and errors. The argument is a folder. */
#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <numeric>
#include <ummap.hpp>
#include <unistd.h>

static int failures;

#define CHECK(what) \
	((what) ? void() : void((std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what), \
				 failures++)))

template <class F> static bool throws(int error, const char *words, F &&call)
{
	try {
		call();
	} catch (const std::system_error &e) {
		std::string text = e.what();
		bool right = e.code().value() == error && text.find(words) != std::string::npos;

		/* The reason is a part of the library's message, and not added to it. */
		right = right && (error != EINVAL || text.find(": Invalid") == std::string::npos);

		if (!right)
			std::fprintf(stderr, "%d: %s\n", e.code().value(), e.what());
		return right;
	}
	return false;
}

static std::size_t mappings()
{
	struct umstat st = {};

	st.struct_size = sizeof(st);
	umstat(nullptr, &st);
	return st.mappings;
}

static void check_contents(const std::string &path)
{
	um::options small;
	small.limit = 1 << 20;
	small.segment = 64 << 10;
	small.policy = "lifo";
	{
		um::mapping m = um::mapping::file(path, um::mode::create, 8 << 20, small);
		um::span<double> values = m.as<double>();

		CHECK(m && m.size() == 8 << 20 && values.size() == 1 << 20 && mappings() == 1);
		std::iota(values.begin(), values.end(), 0.0);
		CHECK(m.stat().budget_bytes == 1 << 20);
		m.sync();
		CHECK(m.stat().dirty_bytes == 0);
		m.sync(0, 4096, UMMAP_NOFLUSH);
		values.back() = -1;
	}
	CHECK(mappings() == 0);
	const um::mapping m = um::mapping::file(path, um::mode::read, um::npos, small, 4096);
	um::span<const double> values = m.as<const double>();
	CHECK(values.size() == (1 << 20) - 512 && values[0] == 512 && values.back() == -1);
	const double n = 1 << 20;
	const double sum = (n - 1) * (n - 2) / 2 - 511 * 512 / 2;
	CHECK(std::accumulate(values.begin(), values.end() - 1, 0.0) == sum);
	CHECK(m.as<const double>(80, 2).size() == 2 && m.as<const double>(80, 2)[1] == 523);
	CHECK(values.subspan(3, 2).front() == 515 && values.subspan(3).size() == values.size() - 3);
}

static void check_calls(const std::string &path)
{
	um::mapping m = um::mapping::file(path, um::mode::read_write), other;
	int fd = open("/dev/zero", O_RDONLY);

	{
		um::commit first = m.begin_sync();

		first.wait();
		CHECK(first.done());
		first = m.begin_sync();
	}
	m.sync(true);
	{
		um::pin held = m.pin(8192, 4096, true), kept = std::move(held);
		CHECK(read(fd, kept.data(), kept.size()) == 4096);
		CHECK(m.stat().pinned_bytes > 0);
	}
	close(fd);
	CHECK(m.stat().pinned_bytes == 0);
	CHECK(m.as<double>()[1024] == 0 && m.as<double>()[1536] == 1536);
	m.advise(um::advice::random);
	m.advise(um::advice::dontneed, 0, 4096);
	m.prefetch(0, 4096);
	m.prefetch({{0, 8}, {4 << 20, 8}});
	other = std::move(m);
	CHECK(!m && other && mappings() == 1 && !m.data());
	m = um::mapping("mem:1M", 1 << 20, um::mode::read_write);
	m = std::move(other);
	CHECK(mappings() == 1 && m.as<const double>()[1536] == 1536);
	m.close();
	m.close();
	CHECK(mappings() == 0);
}

static void check_errors(const std::string &path)
{
	um::options wrong;

	CHECK(throws(ENOENT, "nowhere", [&] { um::mapping::file(path + "nowhere"); }));
	CHECK(throws(EINVAL, "cannot find the driver", [] { um::mapping("steam:/x", 1); }));
	wrong.segment = 5000;
	auto open_file = [&](const um::options &with, off_t offset) {
		um::mapping::file(path, um::mode::read, um::npos, with, offset);
	};
	CHECK(throws(EINVAL, "power of two", [&] { open_file(wrong, 0); }));
	CHECK(throws(EINVAL, "size is 0", [&] { open_file({}, 1 << 30); }));
	um::mapping m = um::mapping::file(path);
	CHECK(throws(EACCES, "read-only", [&] { m.as<double>(); }));
	CHECK(throws(EACCES, "read", [&] { (void)m.pin(0, 8, true); }));
	CHECK(throws(EINVAL, "aligned", [&] { m.as<const double>(3); }));
	CHECK(throws(EINVAL, "not in the mapping", [&] { m.as<const char>(m.size() + 1); }));
	CHECK(throws(EINVAL, "not in the mapping", [&] { m.as<const double>(0, um::npos / 8); }));
	CHECK(throws(ENOMEM, "", [&] { m.sync(0, m.size() + 1); }));
	m.close();
	CHECK(throws(EINVAL, "", [&] { m.sync(); }));
	std::string plain = path.substr(0, path.rfind('/')) + "/plain";
	um::mapping full("error+posix:" + plain + "?error.op=write&error.errno=ENOSPC", 4096,
			 um::mode::create);
	full.as<char>()[0] = 1;
	CHECK(throws(ENOSPC, "", [&] { full.close(); }) && full);
	full.close();
}

static void check_other_mappings()
{
	um::mapping a("mem:64K", 65536, um::mode::read_write);
	um::mapping b("mem:64K", 65536, um::mode::read_write);

	if (a.data() > b.data())
		std::swap(a, b);
	std::size_t apart = static_cast<char *>(b.data()) - static_cast<char *>(a.data());
	b.as<char>()[0] = 1;
	CHECK(throws(EINVAL, "outside", [&] { (void)a.pin(apart, 4096); }));
	CHECK(throws(EINVAL, "outside", [&] { a.sync(apart, 4096); }));
	CHECK(throws(EINVAL, "outside", [&] { a.advise(um::advice::dontneed, apart, 4096); }));
	CHECK(throws(EINVAL, "outside", [&] { a.prefetch(apart, 4096); }));
	CHECK(throws(EINVAL, "outside", [&] { a.prefetch({{0, 8}, {a.size(), 8}}); }));
	CHECK(b.stat().dirty_bytes > 0 && b.stat().pinned_bytes == 0);
	a.prefetch(4096, um::npos);
	a.sync(0, um::npos);
	um::mapping none;
	CHECK(throws(EINVAL, "no mapping", [&] { none.stat(); }));
	CHECK(throws(EINVAL, "no mapping", [&] { (void)none.pin(0, 1); }));
	um::pin held = a.pin(0, 4096), kept = std::move(held);
	CHECK(!held.data() && held.size() == 0 && kept.size() == 4096);
}

int main(int, char **argv)
{
	std::string path = std::string(argv[1]) + "/100%? {x}";

	check_contents(path);
	check_calls(path);
	check_errors(path);
	check_other_mappings();
	return failures != 0;
}
