"""Tables of the system calls on files, by the meaning of their arguments."""

from __future__ import annotations

OPENS = frozenset(("open", "openat", "openat2", "creat"))
OPENDIR = b"O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY"
"""Flags of the open call that the C library makes within opendir."""
STARTS = frozenset(("clone", "clone3", "fork", "vfork"))
"""Calls that start a thread or a process."""

READS = frozenset(("read", "readv", "pread64", "pread", "preadv", "preadv2"))
MOVES = READS | {"write", "writev", "pwrite64", "pwrite", "pwritev", "pwritev2"}
POSITIONED = {
    **dict.fromkeys(("pread64", "pread", "preadv", "pwrite64", "pwrite", "pwritev"), 1),
    **dict.fromkeys(("preadv2", "pwritev2"), 2),
}
"""Calls with an offset argument, and the index of this argument from the end."""

SENDS = frozenset(("sendfile", "sendfile64"))
COPIES = SENDS | {"copy_file_range", "splice"}
"""Calls that read one descriptor and write to another."""
DUPLICATES = frozenset(("dup", "dup2", "dup3"))
PAIRS = frozenset(("pipe", "pipe2", "socketpair"))
"""Calls that return two descriptors that do not refer to files."""
NO_FILES = frozenset(
    ("socket", "accept", "accept4", "eventfd", "eventfd2", "epoll_create", "epoll_create1", "signalfd", "signalfd4")
).union(("inotify_init", "inotify_init1", "timerfd_create", "memfd_create"))
"""Calls that return one descriptor that does not refer to a file."""

_DATA = ("fsync", "fdatasync", "sync_file_range", "syncfs", "fallocate", "fadvise64", "readahead")
_ATTRIBUTES = ("fstat", "fstat64", "fstatfs", "ftruncate", "ftruncate64", "fchmod", "fchown", "fsetxattr", "fgetxattr")
ON_DESCRIPTOR = frozenset(_DATA).union(_ATTRIBUTES, ("getdents", "getdents64", "flock", "flistxattr"))

_STATES = ("stat", "lstat", "stat64", "lstat64", "newfstatat", "fstatat64", "statx", "statfs", "access", "faccessat")
_NAMES = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat")
_LINKS = ("readlink", "readlinkat", "link", "linkat", "symlink", "symlinkat")
_CHANGES = ("chmod", "fchmodat", "chown", "lchown", "fchownat", "utimensat", "truncate", "truncate64", "faccessat2")
_EXTENDED = ("setxattr", "getxattr", "lgetxattr", "listxattr")
ON_PATH = frozenset(_STATES).union(_NAMES, _LINKS, _CHANGES, _EXTENDED)
