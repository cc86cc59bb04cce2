/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap.hpp - mappings of ummap.h for C++17. A mapping ends with its scope, its contents are
 * accessed as spans, and errors are exceptions.
 *
 * Everything is in namespace um. A call that fails throws um::error, which is a std::system_error,
 * unless its comment says otherwise: code() is errno in std::generic_category, and what() is the
 * library's message. Any number of threads may use a mapping. When it is destroyed, assigned to, or
 * closed, no other thread may use it any more. Offsets and sizes are in bytes.
 */
#ifndef UMMAP_HPP
#define UMMAP_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
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

/* Size that means "up to the end": of the mapping, of the file, or of the span. */
constexpr std::size_t npos = std::size_t(-1);

/* Error of a call. what() is the message alone, which contains the reason. */
class error : public std::system_error {
public:
	error(int code, const std::string &message)
		: std::system_error(code, std::generic_category()), message_(message) {}
	const char *what() const noexcept override { return message_.what(); }

private:
	std::runtime_error message_; /* copied without exceptions */
};

/* Throws the error of this thread's last call of the library, which has failed. */
[[noreturn]] inline void throw_error()
{
	throw error(errno, umerrormsg());
}

/*
 * Consecutive elements in memory, like std::span of C++20. A span of a mapping is valid until the
 * mapping ends.
 */
template <class T> class span {
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using iterator = T *;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
	/* Converts a span of T to a span of const T. */
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
	/* Returns the elements [first, first + count), which must exist; npos: up to the end. */
	constexpr span subspan(std::size_t first, std::size_t count = npos) const
	{
		return {data_ + first, count == npos ? size_ - first : count};
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

/* Access to a mapping, and creation of its store. */
enum class mode {
	read,       /* loads only */
	read_write, /* loads and stores; the store must exist */
	create      /* loads and stores; creates a missing file, lengthens a short one */
};

/* Advice of umadvise(3). */
enum class advice {
	normal = UMMAP_ADV_NORMAL,
	random = UMMAP_ADV_RANDOM,
	sequential = UMMAP_ADV_SEQUENTIAL,
	willneed = UMMAP_ADV_WILLNEED,
	dontneed = UMMAP_ADV_DONTNEED,
	discard = UMMAP_ADV_DISCARD
};

/* Attributes of a new mapping; ummap_open(3) describes each. Every field has a default. */
struct options {
	std::size_t limit = 0;      /* budget in bytes; 0: the budget of the process */
	std::size_t segment = 0;    /* bytes of a segment; 0: UMMAP_SEG_SIZE, or auto */
	std::string policy{};       /* policy: "fifo", "lifo", "plru", ...; "": s3fifo */
	std::string group{};        /* group, whose mappings share a policy and a budget */
	int engine = UMMAP_ENGINE_DEFAULT; /* engine, UMMAP_ENGINE_* */
	unsigned flags = 0;         /* flags: UMMAP_KERNEL, _SHARED, _BLANK, _WRITERS, _GROWS */
	int flush_interval = 0;     /* seconds until a dirty segment is made durable; 0: never */
	int on_full = UMMAP_FULL_DEFAULT; /* effect of stores when writes fail, UMMAP_FULL_* */
	std::string tiers;   /* tiers that segments may be in; empty: all */
};

class mapping;

/*
 * Range of a mapping that stays resident, for system calls and devices, as long as this object
 * lives: umpin(3). It must be destroyed before its mapping.
 */
class pin {
public:
	pin(pin &&other) noexcept : at_(std::exchange(other.at_, nullptr)),
		size_(std::exchange(other.size_, 0)) {}
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

/*
 * A commit that mapping::begin_sync has begun: umsync_begin(3). The destructor waits for its end,
 * and ignores errors.
 */
class commit {
public:
	commit(commit &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	commit &operator=(commit &&other) noexcept
	{
		std::swap(handle_, other.handle_);
		return *this;
	}
	~commit()
	{
		if (handle_)
			umsync_wait(&handle_);
	}

	/* Returns whether the commit has ended. Throws the error if it has failed, once. */
	bool done()
	{
		int ended = 1;

		if (handle_ && umsync_test(&handle_, &ended) == -1)
			throw_error();
		return ended;
	}
	/* Waits until the commit has ended. Throws the error if it has failed, once. */
	void wait()
	{
		if (handle_ && umsync_wait(&handle_) == -1)
			throw_error();
	}

private:
	friend class mapping;
	explicit commit(umsync_handle *handle) noexcept : handle_(handle) {}

	umsync_handle *handle_;
};

/* A mapping, which is a range of addresses whose contents are in a store; or no mapping. */
class mapping {
public:
	/* Makes an object without a mapping. */
	mapping() noexcept = default;

	/*
	 * Maps [offset, offset + size) of the store that a URI names, such as "wal+uring:/data/a";
	 * see ummap_open(3) and ummap-drivers(7).
	 */
	mapping(const std::string &uri, std::size_t size, mode access = mode::read,
		const options &opts = {}, std::int64_t offset = 0)
	{
		if (!try_open(uri, size, access, opts, offset))
			throw_error();
	}

	/*
	 * Maps a file or block device from offset on; size npos: up to its end. The driver is
	 * uring, or posix if the kernel has no io_uring. With size npos, also throws errors of
	 * stat(2) and open(2).
	 */
	static mapping file(const std::string &path, mode access = mode::read,
			    std::size_t size = npos, const options &opts = {},
			    std::int64_t offset = 0)
	{
		mapping made;

		if (size == npos)
			size = size_of_file(path, offset);
		if (made.try_open("uring:" + quote(path), size, access, opts, offset))
			return made;
		if (errno != EOPNOTSUPP ||
		    !made.try_open("posix:" + quote(path), size, access, opts, offset))
			throw_error();
		return made;
	}

	mapping(mapping &&other) noexcept : addr_(std::exchange(other.addr_, nullptr)),
		size_(std::exchange(other.size_, 0)), writes_(other.writes_) {}
	/* Ends the mapping that this object has, as the destructor does. */
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
	/*
	 * Makes all changes durable and ends the mapping. If storage fails, the changes are lost
	 * without an error. A program that must detect this calls close() first.
	 */
	~mapping() { end(); }

	/*
	 * Makes all changes durable and ends the mapping. If it throws, the mapping remains, unless
	 * the error is EUCLEAN: umunmap(3). Without a mapping it does nothing.
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
	 * Returns the bytes [offset, offset + count * sizeof(T)) as elements; count npos: all
	 * elements that the mapping has from offset on. Throws EACCES if the mapping is read-only
	 * and T is not const; EINVAL if the elements are not aligned, or not in the mapping.
	 */
	template <class T> span<T> as(std::size_t offset = 0, std::size_t count = npos) const
	{
		static_assert(std::is_trivially_copyable_v<T>,
			      "elements of a mapping must be trivially copyable");
		if (!std::is_const_v<T> && !writes_)
			fail(EACCES, "cannot write to elements: the mapping is read-only. "
				     "Try a const element type, or mode::read_write");
		if (offset > size_ || (count != npos && count > (size_ - offset) / sizeof(T)))
			fail(EINVAL, "cannot access elements: they are not in the mapping. "
				     "Try a smaller offset or count");
		if ((reinterpret_cast<std::uintptr_t>(addr_) + offset) % alignof(T))
			fail(EINVAL, "cannot access elements: they are not aligned. "
				     "Try an offset that is a multiple of the element's alignment");
		return {reinterpret_cast<T *>(static_cast<char *>(addr_) + offset),
			count == npos ? (size_ - offset) / sizeof(T) : count};
	}

	/* The calls below that take a range throw EINVAL if it begins outside the mapping. */

	/* Makes all changes durable: umsync(3). evict: all segments are then evicted. */
	void sync(bool evict = false) { check(umsync(addr_, evict)); }
	/* Syncs a range: umsync_range(3). flags: UMMAP_ASYNC, UMMAP_EVICT, UMMAP_NOFLUSH. */
	void sync(std::size_t offset, std::size_t size, int flags = 0)
	{
		check(umsync_range(at(offset), rest(offset, size), flags));
	}
	/* Begins to make the contents of this moment durable in the background, while the program
	 * goes on: umsync_begin(3). */
	[[nodiscard]] um::commit begin_sync()
	{
		umsync_handle *handle = nullptr;

		check(umsync_begin(addr_, 0, &handle));
		return um::commit(handle);
	}
	/* Tells the library how a range will be used: umadvise(3). */
	void advise(um::advice how, std::size_t offset = 0, std::size_t size = npos)
	{
		check(umadvise(at(offset), rest(offset, size), static_cast<int>(how)));
	}
	/* Loads a range in the background, without waiting: umprefetch(3). */
	void prefetch(std::size_t offset, std::size_t size) { prefetch({{offset, size}}); }
	/* Loads many ranges in the background; each is a pair of offset and size. */
	void prefetch(const std::vector<std::pair<std::size_t, std::size_t>> &ranges)
	{
		std::vector<iovec> list;

		list.reserve(ranges.size());
		for (auto [offset, size] : ranges)
			list.push_back({at(offset), rest(offset, size)});
		check(umprefetch(list.data(), static_cast<int>(list.size())));
	}
	/*
	 * Keeps a range resident as long as the result lives: umpin(3). write: system calls or
	 * devices may store to it.
	 */
	[[nodiscard]] um::pin pin(std::size_t offset, std::size_t size, bool write = false)
	{
		return {at(offset), rest(offset, size), write};
	}
	/* Returns the counters of the mapping: umstat(3). Throws EINVAL without a mapping. */
	struct umstat stat() const
	{
		struct umstat st = {};

		if (!addr_)
			fail(EINVAL, "cannot read counters: there is no mapping");
		st.struct_size = sizeof(st);
		check(umstat(addr_, &st));
		return st;
	}

private:
	/* Returns false on failure: errno is set, and umerrormsg() returns the message. */
	bool try_open(const std::string &uri, std::size_t size, mode access, const options &opts,
		      std::int64_t offset)
	{
		struct ummap_attr attr = UMMAP_ATTR_INIT;
		bool writes = access != mode::read;
		int prot = writes ? PROT_READ | PROT_WRITE : PROT_READ;
		void *addr = nullptr;

		attr.budget = opts.limit;
		attr.seg_size = opts.segment;
		attr.policy = opts.policy.empty() ? nullptr : opts.policy.c_str();
		attr.group = opts.group.empty() ? nullptr : opts.group.c_str();
		attr.engine = opts.engine;
		attr.flags = opts.flags | (access == mode::create ? UMMAP_CREATE : 0);
		attr.flush_interval = opts.flush_interval;
		attr.on_full = opts.on_full;
		attr.tiers = opts.tiers.empty() ? nullptr : opts.tiers.c_str();
		if (ummap_open(uri.c_str(), size, offset, prot, &attr, &addr) == -1)
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
	/* Returns the address of an offset, and checks the offset, because another mapping may
	 * follow this one. */
	char *at(std::size_t offset) const
	{
		if (offset >= size_)
			fail(EINVAL, addr_ ? "cannot use the range: it begins outside the mapping" :
				     "cannot use the range: there is no mapping");
		return static_cast<char *>(addr_) + offset;
	}
	std::size_t rest(std::size_t offset, std::size_t size) const
	{
		return size == npos && offset <= size_ ? size_ - offset : size;
	}
	[[noreturn]] static void fail(int code, const char *message)
	{
		throw error(code, message);
	}
	static void check(int result)
	{
		if (result == -1)
			throw_error();
	}
	static std::size_t size_of_file(const std::string &path, std::int64_t offset)
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
	/* Returns the path, in which bytes that have a meaning in a URI are escaped. */
	static std::string quote(const std::string &path)
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

	void *addr_ = nullptr;    /* address of the mapping; NULL: none */
	std::size_t size_ = 0;    /* bytes of the mapping */
	bool writes_ = false;     /* whether the mapping is writable */
};

} // namespace um

#endif
