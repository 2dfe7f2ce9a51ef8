// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into a process, turns each of its NETLINK_XFRM sockets into a conversation with the
// gateway at $WEIR_XFRM_SOCKET (a Unix SEQPACKET socket). Every other call passes through as it is.
//
//   socket(AF_NETLINK, .., NETLINK_XFRM)  -> a connected Unix socket in its place
//   bind, setsockopt, getsockname         -> kept here, told to the gateway by a greeting
//   sendto, sendmsg                       -> without the address
//   recvfrom, recvmsg                     -> with the kernel's address
//
// What is sent and received is netlink, byte for byte. A greeting is the only other datagram:
// struct greeting, told from netlink by its first word of 0. It is sent at the start and whenever
// something in it changes.
//
// The gateway gone: calls fail with ECONNREFUSED. The gateway back: the next call connects again,
// and what was received is ENOBUFS once, by which a netlink reader knows that it missed something.
// The associations went with the gateway, as they go with a kernel.
//
// Safe in processes with threads: what is known of a descriptor is in atomics; connecting again is
// under a lock.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ADDRESS __CONST_SOCKADDR_ARG
#define ADDRESS_OUT __SOCKADDR_ARG

// Descriptors from here on are not taken: socket() fails with EMFILE.
#define DESCRIPTORS 65536
// A reader of a dead socket is slowed down: event loops call it again and again.
#define DEAD_PAUSE_NS 200000000

#ifndef IP_XFRM_POLICY
#define IP_XFRM_POLICY 17
#endif
#ifndef IPV6_XFRM_POLICY
#define IPV6_XFRM_POLICY 35
#endif

enum { OPTION_WORDS = 1, OPTION_CAPPED = 2 };

struct greeting {
	uint32_t zero;
	uint32_t version;
	uint32_t port;
	uint32_t groups;
	uint32_t options;
};

struct known {
	atomic_uint port; // 0: not ours
	atomic_uint groups;
	atomic_uint options;
};

static struct known table[DESCRIPTORS];
static atomic_uint next_port = 1;
static pthread_mutex_t reviving = PTHREAD_MUTEX_INITIALIZER;

static int (*real_socket)(int, int, int);
static int (*real_bind)(int, const struct sockaddr *, socklen_t);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_getsockname)(int, struct sockaddr *, socklen_t *);
static int (*real_setsockopt)(int, int, int, const void *, socklen_t);
static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_recv)(int, void *, size_t, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static int (*real_close)(int);
static int (*real_dup)(int);
static int (*real_dup2)(int, int);
static int (*real_dup3)(int, int, int);
static int (*real_fcntl)(int, int, ...);

static void find(void *place, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	memcpy(place, &symbol, sizeof symbol);
}

static pthread_once_t found = PTHREAD_ONCE_INIT;

static void find_all(void)
{
	find(&real_socket, "socket");
	find(&real_bind, "bind");
	find(&real_connect, "connect");
	find(&real_getsockname, "getsockname");
	find(&real_setsockopt, "setsockopt");
	find(&real_send, "send");
	find(&real_sendto, "sendto");
	find(&real_sendmsg, "sendmsg");
	find(&real_recv, "recv");
	find(&real_recvfrom, "recvfrom");
	find(&real_recvmsg, "recvmsg");
	find(&real_close, "close");
	find(&real_dup, "dup");
	find(&real_dup2, "dup2");
	find(&real_dup3, "dup3");
	find(&real_fcntl, "fcntl64");
	if (!real_fcntl)
		find(&real_fcntl, "fcntl");
}

// Other libraries' constructors may call before ours runs.
__attribute__((constructor)) static void ready(void)
{
	pthread_once(&found, find_all);
}

static struct known *of(int fd)
{
	ready();
	if (fd < 0 || fd >= DESCRIPTORS || atomic_load(&table[fd].port) == 0)
		return NULL;
	return &table[fd];
}

static void forget(int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS)
		atomic_store(&table[fd].port, 0);
}

static void copy(int from, int to)
{
	struct known *known = of(from);
	if (to < 0 || to >= DESCRIPTORS || from == to)
		return;
	if (known) {
		atomic_store(&table[to].groups, atomic_load(&known->groups));
		atomic_store(&table[to].options, atomic_load(&known->options));
	}
	atomic_store(&table[to].port, known ? atomic_load(&known->port) : 0);
}

static int greet(int fd, const struct known *known)
{
	struct greeting greeting = {
		.version = 1,
		.port = atomic_load(&known->port),
		.groups = atomic_load(&known->groups),
		.options = atomic_load(&known->options),
	};
	return real_send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int reach(int flags)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("WEIR_XFRM_SOCKET");
	if (!path || strlen(path) >= sizeof address.sun_path) {
		errno = ECONNREFUSED;
		return -1;
	}
	strcpy(address.sun_path, path);
	int fd = real_socket(AF_UNIX, SOCK_SEQPACKET | (flags & SOCK_CLOEXEC), 0);
	if (fd < 0)
		return -1;
	if (real_connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int error = errno;
		real_close(fd);
		errno = error == ENOENT ? ECONNREFUSED : error;
		return -1;
	}
	if (flags & SOCK_NONBLOCK)
		real_fcntl(fd, F_SETFL, real_fcntl(fd, F_GETFL) | O_NONBLOCK);
	return fd;
}

// Puts a fresh connection in the place of a dead one.
static int revive(int fd, const struct known *known)
{
	char byte;
	int result = 0;
	pthread_mutex_lock(&reviving);
	ssize_t waiting = real_recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	int alive = waiting > 0 || (waiting < 0 && (errno == EAGAIN || errno == EINTR));
	if (!alive) {
		int descriptor_flags = real_fcntl(fd, F_GETFD);
		int nonblocking = real_fcntl(fd, F_GETFL) & O_NONBLOCK;
		int cloexec = descriptor_flags & FD_CLOEXEC;
		int fresh = reach(SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0));
		if (fresh < 0 || real_dup3(fresh, fd, cloexec ? O_CLOEXEC : 0) < 0)
			result = -1;
		int error = errno;
		if (fresh >= 0)
			real_close(fresh);
		errno = error;
		if (result == 0)
			result = greet(fd, known);
	}
	pthread_mutex_unlock(&reviving);
	return result;
}

static int is_dead(ssize_t result)
{
	return result < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN);
}

static ssize_t lost(int fd, const struct known *known)
{
	struct timespec pause = { .tv_nsec = DEAD_PAUSE_NS };
	if (revive(fd, known) == 0) {
		errno = ENOBUFS;
		return -1;
	}
	nanosleep(&pause, NULL);
	errno = ECONNREFUSED;
	return -1;
}

EXPORT int socket(int domain, int type, int protocol)
{
	ready();
	if (domain != AF_NETLINK || protocol != NETLINK_XFRM)
		return real_socket(domain, type, protocol);
	int fd = reach(type);
	if (fd < 0) {
		int error = errno;
		dprintf(STDERR_FILENO,
			"weir xfrm: no gateway at %s: %s; is it up, with [xfrm] in its configuration?\n",
			getenv("WEIR_XFRM_SOCKET") ?: "(unset)", strerror(error));
		errno = error;
		return -1;
	}
	if (fd >= DESCRIPTORS) {
		real_close(fd);
		errno = EMFILE;
		return -1;
	}
	// As the kernel does it: the first socket has the process's number.
	unsigned int count = atomic_fetch_add(&next_port, 1);
	unsigned int port = count == 1 ? (unsigned int)getpid() : 0xf0000000u + count;
	atomic_store(&table[fd].groups, 0);
	atomic_store(&table[fd].options, 0);
	atomic_store(&table[fd].port, port);
	greet(fd, &table[fd]);
	return fd;
}

EXPORT int bind(int fd, ADDRESS address, socklen_t length)
{
	struct known *known = of(fd);
	if (!known)
		return real_bind(fd, address.__sockaddr__, length);
	struct sockaddr_nl netlink;
	if (length < sizeof netlink) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&netlink, address.__sockaddr__, sizeof netlink);
	if (netlink.nl_pid)
		atomic_store(&known->port, netlink.nl_pid);
	atomic_store(&known->groups, netlink.nl_groups);
	return greet(fd, known) < 0 ? revive(fd, known) : 0;
}

EXPORT int connect(int fd, ADDRESS address, socklen_t length)
{
	// To the kernel, to whom it speaks anyway.
	return of(fd) ? 0 : real_connect(fd, address.__sockaddr__, length);
}

EXPORT int getsockname(int fd, ADDRESS_OUT address, socklen_t *length)
{
	struct known *known = of(fd);
	if (!known)
		return real_getsockname(fd, address.__sockaddr__, length);
	struct sockaddr_nl netlink = {
		.nl_family = AF_NETLINK,
		.nl_pid = atomic_load(&known->port),
		.nl_groups = atomic_load(&known->groups),
	};
	memcpy(address.__sockaddr__, &netlink,
	       *length < sizeof netlink ? *length : sizeof netlink);
	*length = sizeof netlink;
	return 0;
}

static int set_option(int fd, struct known *known, int name, const void *value, socklen_t length)
{
	int number = 0;
	if (length < sizeof number) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&number, value, sizeof number);
	unsigned int group = number > 0 && number < 33 ? 1u << (number - 1) : 0;
	unsigned int option = 0;
	switch (name) {
	case NETLINK_ADD_MEMBERSHIP:
		atomic_fetch_or(&known->groups, group);
		break;
	case NETLINK_DROP_MEMBERSHIP:
		atomic_fetch_and(&known->groups, ~group);
		break;
	case NETLINK_EXT_ACK:
		option = OPTION_WORDS;
		break;
	case NETLINK_CAP_ACK:
		option = OPTION_CAPPED;
		break;
	default:
		return 0;
	}
	if (option && number)
		atomic_fetch_or(&known->options, option);
	else if (option)
		atomic_fetch_and(&known->options, ~option);
	return greet(fd, known) < 0 ? revive(fd, known) : 0;
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	struct known *known = of(fd);
	if (known && level == SOL_NETLINK)
		return set_option(fd, known, name, value, length);
	// An IKE daemon asks that its own packets pass every policy. The gateway's policies are for
	// its hosts' packets: those of its kernel pass.
	if ((level == IPPROTO_IP && name == IP_XFRM_POLICY) ||
	    (level == IPPROTO_IPV6 && name == IPV6_XFRM_POLICY))
		return 0;
	return real_setsockopt(fd, level, name, value, length);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct known *known = of(fd);
	if (!known)
		return real_sendmsg(fd, message, flags);
	struct msghdr plain = { .msg_iov = message->msg_iov, .msg_iovlen = message->msg_iovlen };
	ssize_t result = real_sendmsg(fd, &plain, flags | MSG_NOSIGNAL);
	if (is_dead(result) && revive(fd, known) == 0)
		result = real_sendmsg(fd, &plain, flags | MSG_NOSIGNAL);
	return result;
}

EXPORT ssize_t sendto(int fd, const void *bytes, size_t length, int flags, ADDRESS address,
		      socklen_t address_length)
{
	if (!of(fd))
		return real_sendto(fd, bytes, length, flags, address.__sockaddr__, address_length);
	struct iovec piece = { .iov_base = (void *)bytes, .iov_len = length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	return sendmsg(fd, &message, flags);
}

EXPORT ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	if (!of(fd))
		return real_send(fd, bytes, length, flags);
	struct iovec piece = { .iov_base = (void *)bytes, .iov_len = length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	return sendmsg(fd, &message, flags);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	struct known *known = of(fd);
	if (!known)
		return real_recvmsg(fd, message, flags);
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	void *name = message->msg_name;
	socklen_t room = message->msg_namelen;
	message->msg_name = NULL;
	message->msg_namelen = 0;
	ssize_t result = real_recvmsg(fd, message, flags);
	message->msg_name = name;
	message->msg_namelen = room;
	if (result == 0 || is_dead(result))
		return lost(fd, known);
	if (result > 0 && name) {
		memcpy(name, &kernel, room < sizeof kernel ? room : sizeof kernel);
		message->msg_namelen = sizeof kernel;
	}
	return result;
}

EXPORT ssize_t recvfrom(int fd, void *bytes, size_t length, int flags, ADDRESS_OUT address,
			socklen_t *address_length)
{
	struct known *known = of(fd);
	if (!known)
		return real_recvfrom(fd, bytes, length, flags, address.__sockaddr__, address_length);
	struct iovec piece = { .iov_base = bytes, .iov_len = length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	if (address.__sockaddr__ && address_length) {
		message.msg_name = address.__sockaddr__;
		message.msg_namelen = *address_length;
	}
	ssize_t result = recvmsg(fd, &message, flags);
	if (result >= 0 && message.msg_name)
		*address_length = message.msg_namelen;
	return result;
}

EXPORT ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	struct known *known = of(fd);
	if (!known)
		return real_recv(fd, bytes, length, flags);
	struct iovec piece = { .iov_base = bytes, .iov_len = length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	return recvmsg(fd, &message, flags);
}

// What the compiler makes of recv and recvfrom with buffers whose size it knows.
EXPORT ssize_t __recv_chk(int fd, void *bytes, size_t length, size_t room, int flags)
{
	if (length > room)
		abort();
	return recv(fd, bytes, length, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *bytes, size_t length, size_t room, int flags,
			      ADDRESS_OUT address, socklen_t *address_length)
{
	if (length > room)
		abort();
	return recvfrom(fd, bytes, length, flags, address, address_length);
}

EXPORT int close(int fd)
{
	ready();
	forget(fd);
	return real_close(fd);
}

EXPORT int dup(int fd)
{
	ready();
	int result = real_dup(fd);
	copy(fd, result);
	return result;
}

EXPORT int dup2(int fd, int to)
{
	ready();
	int result = real_dup2(fd, to);
	copy(fd, result);
	return result;
}

EXPORT int dup3(int fd, int to, int flags)
{
	ready();
	int result = real_dup3(fd, to, flags);
	copy(fd, result);
	return result;
}

EXPORT int fcntl64(int fd, int command, ...)
{
	va_list arguments;
	va_start(arguments, command);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	ready();
	int result = real_fcntl(fd, command, argument);
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		copy(fd, result);
	return result;
}

EXPORT int fcntl(int fd, int command, ...) __attribute__((alias("fcntl64")));
