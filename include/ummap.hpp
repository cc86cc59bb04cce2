/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap.hpp - mappings of ummap.h for C++17: they end with their scope, are seen as spans, and errors are exceptions.
 *
 * Everything is in namespace um. Calls throw std::system_error, whose code is errno in std::generic_category and whose
 * what() has the library's sentence, unless said otherwise. A mapping may be used by any number of threads; only its end, an
 * assignment to it and `close` require that no other thread uses it any more. Offsets and lengths are bytes.
 */
#ifndef UMMAP_HPP
#define UMMAP_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <type_traits>
#include <ummap.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace um {

/* To the end of the mapping, of the file. */
constexpr std::size_t npos = std::size_t(-1);

/* The library's sentence about this thread's last call, which failed, as an exception. */
[[noreturn]] inline void throw_error()
{
	int error = errno;
	throw std::system_error(error, std::generic_category(), umerrormsg());
}

/* Elements that stand somewhere, as std::span of C++20: valid as long as what they stand in. */
template <class T> class span {
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using iterator = T *;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
	/* Elements to be read only, from those that may be stored to. */
	template <class U, class = std::enable_if_t<std::is_convertible_v<U (*)[], T (*)[]>>>
	constexpr span(const span<U> &other) noexcept : data_(other.data()), size_(other.size()) {}

	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr T &operator[](std::size_t i) const { return data_[i]; }
	constexpr T &front() const { return data_[0]; }
	constexpr T &back() const { return data_[size_ - 1]; }
	/* Elements [first, first + count), which have to be there; npos: to the end. */
	constexpr span subspan(std::size_t first, std::size_t count = npos) const
	{
		return {data_ + first, count == npos ? size_ - first : count};
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

enum class mode {
	read,       /* loads only */
	read_write, /* of a store that is there */
	create      /* read and write; a file that is not there is made, and one that is shorter than the mapping made as long */
};

enum class advice { normal = 0, random = 1, sequential = 2, willneed = 3, dontneed = 4, discard = 5 };

/* How to map: what ummap_open(3) says of each. What is not set is the default there. */
struct options {
	std::size_t limit = 0;      /* bytes that this mapping may have in memory; 0: only the process's limit holds */
	std::size_t segment = 0;    /* bytes that move at a time, a power of two from the page's size on */
	std::string policy{};       /* "s3fifo", "fifo", "lifo", "plru", "prnd", ...; "": s3fifo */
	std::string group{};        /* mappings of one name share policy and limit */
	int engine = UMMAP_ENGINE_DEFAULT;
	unsigned flags = 0;         /* UMMAP_KERNEL, UMMAP_WRITERS, UMMAP_SHARED, UMMAP_BLANK */
	int flush_interval = 0;     /* seconds until a change is written by itself; 0: never */
	int on_full = UMMAP_FULL_DEFAULT; /* UMMAP_FULL_WAIT, UMMAP_FULL_SIGBUS */
};

class mapping;

/* A part of a mapping that stays in memory, for system calls and devices, until this ends. */
class pin {
public:
	pin(pin &&other) noexcept : at_(std::exchange(other.at_, nullptr)), size_(std::exchange(other.size_, 0)) {}
	pin &operator=(pin &&other) noexcept
	{
		std::swap(at_, other.at_);
		std::swap(size_, other.size_);
		return *this;
	}
	~pin()
	{
		if (at_)
			umunpin(at_, size_);
	}

	void *data() const noexcept { return at_; }
	std::size_t size() const noexcept { return size_; }

private:
	friend class mapping;
	pin(void *at, std::size_t size, bool write) : at_(at), size_(size)
	{
		if (umpin(at, size, write ? PROT_READ | PROT_WRITE : PROT_READ) == -1)
			throw_error();
	}

	void *at_;
	std::size_t size_;
};

class mapping {
public:
	/* No mapping. */
	mapping() noexcept = default;

	/* Maps [offset, offset + size) of the store that a URI names, "wal+uring:/data/a" say; see ummap-drivers(7). */
	mapping(const std::string &uri, std::size_t size, mode how = mode::read, const options &with = {}, std::int64_t offset = 0)
	{
		if (!try_open(uri, size, how, with, offset))
			throw_error();
	}

	/*
	 * Maps a file from offset on; size npos: up to its end. The driver is uring, or posix where the kernel has no io_uring.
	 * Also throws what stat(2) and, of a device, open(2) give.
	 */
	static mapping file(const std::string &path, mode how = mode::read, std::size_t size = npos, const options &with = {},
			    std::int64_t offset = 0)
	{
		mapping made;

		if (size == npos)
			size = size_of(path, offset);
		if (made.try_open("uring:" + quoted(path), size, how, with, offset))
			return made;
		if (errno != EOPNOTSUPP || !made.try_open("posix:" + quoted(path), size, how, with, offset))
			throw_error();
		return made;
	}

	mapping(mapping &&other) noexcept : addr_(std::exchange(other.addr_, nullptr)),
		size_(std::exchange(other.size_, 0)), writes_(other.writes_) {}
	/* Ends what was mapped before, as the destructor does. */
	mapping &operator=(mapping &&other) noexcept
	{
		if (this != &other) {
			end();
			addr_ = std::exchange(other.addr_, nullptr);
			size_ = std::exchange(other.size_, 0);
			writes_ = other.writes_;
		}
		return *this;
	}
	mapping(const mapping &) = delete;
	mapping &operator=(const mapping &) = delete;
	/* Makes changes durable. A destructor cannot report that storage failed to: whoever has to know calls close first. */
	~mapping() { end(); }

	/*
	 * Makes changes durable and ends the mapping; if it throws, the mapping stands, unless the code is EUCLEAN (see umunmap(3)).
	 * Of no mapping: nothing happens.
	 */
	void close()
	{
		bool failed = addr_ && umunmap(addr_, writes_) == -1;

		if (failed && errno != EUCLEAN)
			throw_error();
		addr_ = nullptr;
		size_ = 0;
		if (failed)
			throw_error();
	}

	explicit operator bool() const noexcept { return addr_; }
	void *data() const noexcept { return addr_; }
	std::size_t size() const noexcept { return size_; }

	/*
	 * The bytes [offset, offset + count * sizeof(T)) as elements; count npos: as many as there are. T has to be const in a
	 * mapping that is read only (EACCES). Throws EINVAL: the elements are not aligned, or not in the mapping.
	 */
	template <class T> span<T> as(std::size_t offset = 0, std::size_t count = npos) const
	{
		static_assert(std::is_trivially_copyable_v<T>, "what is in a file has to be plain bytes");
		if (!std::is_const_v<T> && !writes_)
			fail(EACCES, "the mapping is read only: its elements are const");
		if (offset > size_ || (count != npos && count > (size_ - offset) / sizeof(T)))
			fail(EINVAL, "the elements are not in the mapping");
		if ((reinterpret_cast<std::uintptr_t>(addr_) + offset) % alignof(T))
			fail(EINVAL, "the elements would not be aligned");
		return {reinterpret_cast<T *>(static_cast<char *>(addr_) + offset),
			count == npos ? (size_ - offset) / sizeof(T) : count};
	}

	/* Calls for a range throw EINVAL where it begins outside the mapping. */

	/* Makes all changes durable; evict: then lets go of the memory. */
	void sync(bool evict = false) { check(umsync(addr_, evict)); }
	/* The same for a range; flags: UMMAP_ASYNC, UMMAP_EVICT, UMMAP_NOFLUSH. */
	void sync(std::size_t offset, std::size_t size, int flags = 0)
	{
		check(umsync_range(at(offset), rest(offset, size), flags));
	}
	/* Says how a range will be used; normal, random and sequential are for the whole mapping. */
	void advise(um::advice how, std::size_t offset = 0, std::size_t size = npos)
	{
		check(umadvise(at(offset), rest(offset, size), static_cast<int>(how)));
	}
	/* Loads a range in the background; or many at once, which are pairs of offset and size. */
	void prefetch(std::size_t offset, std::size_t size) { prefetch({{offset, size}}); }
	void prefetch(const std::vector<std::pair<std::size_t, std::size_t>> &ranges)
	{
		std::vector<iovec> list;

		list.reserve(ranges.size());
		for (auto [offset, size] : ranges)
			list.push_back({at(offset), rest(offset, size)});
		check(umprefetch(list.data(), static_cast<int>(list.size())));
	}
	/* Keeps a range in memory as long as the result lives; write: the kernel or a device stores there. */
	[[nodiscard]] um::pin pin(std::size_t offset, std::size_t size, bool write = false)
	{
		return {at(offset), rest(offset, size), write};
	}
	/* The counters of umstat(3). */
	struct umstat stat() const
	{
		struct umstat st = {};

		if (!addr_)
			fail(EINVAL, "there is no mapping");
		st.struct_size = sizeof(st);
		check(umstat(addr_, &st));
		return st;
	}

private:
	/* False: errno is set, and umerrormsg has the sentence. */
	bool try_open(const std::string &uri, std::size_t size, mode how, const options &with, std::int64_t offset)
	{
		struct ummap_attr attr = UMMAP_ATTR_INIT;
		bool writes = how != mode::read;
		void *addr = nullptr;

		attr.budget = with.limit;
		attr.seg_size = with.segment;
		attr.policy = with.policy.empty() ? nullptr : with.policy.c_str();
		attr.group = with.group.empty() ? nullptr : with.group.c_str();
		attr.engine = with.engine;
		attr.flags = with.flags | (how == mode::create ? UMMAP_CREATE : 0);
		attr.flush_interval = with.flush_interval;
		attr.on_full = with.on_full;
		if (ummap_open(uri.c_str(), size, offset, writes ? PROT_READ | PROT_WRITE : PROT_READ, &attr, &addr) == -1)
			return false;
		addr_ = addr;
		size_ = size;
		writes_ = writes;
		return true;
	}
	void end() noexcept
	{
		if (addr_ && umunmap(addr_, writes_) == -1 && errno != EUCLEAN)
			umunmap(addr_, 0);
		addr_ = nullptr;
		size_ = 0;
	}
	/* Where nothing of this mapping is, another one may be. */
	char *at(std::size_t offset) const
	{
		if (offset >= size_)
			fail(EINVAL, addr_ ? "the range begins outside the mapping" : "there is no mapping");
		return static_cast<char *>(addr_) + offset;
	}
	std::size_t rest(std::size_t offset, std::size_t size) const
	{
		return size == npos && offset <= size_ ? size_ - offset : size;
	}
	[[noreturn]] static void fail(int error, const char *sentence)
	{
		throw std::system_error(error, std::generic_category(), sentence);
	}
	static void check(int result)
	{
		if (result == -1)
			throw_error();
	}
	static std::size_t size_of(const std::string &path, std::int64_t offset)
	{
		struct ::stat st;

		if (::stat(path.c_str(), &st) == -1)
			throw std::system_error(errno, std::generic_category(), path);
		off_t size = S_ISBLK(st.st_mode) ? size_of_device(path) : st.st_size;
		return offset < size ? static_cast<std::size_t>(size - offset) : 0;
	}
	static off_t size_of_device(const std::string &path)
	{
		int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
		off_t size = fd == -1 ? -1 : ::lseek(fd, 0, SEEK_END);
		int error = errno;

		if (fd != -1)
			::close(fd);
		if (size == -1)
			throw std::system_error(error, std::generic_category(), path);
		return size;
	}
	/* A path may have any bytes, of which some mean something in a URI. */
	static std::string quoted(const std::string &path)
	{
		static const char digits[] = "0123456789ABCDEF";
		std::string text;

		for (unsigned char c : path) {
			if (c == '%' || c == '?' || c == '{')
				text += {'%', digits[c >> 4], digits[c & 15]};
			else
				text += static_cast<char>(c);
		}
		return text;
	}

	void *addr_ = nullptr;
	std::size_t size_ = 0;
	bool writes_ = false;
};

} // namespace um

#endif
