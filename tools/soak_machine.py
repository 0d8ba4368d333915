"""What a soak does to the machine under a service: a small disk that is full, slow or fails, and a clock that jumps.

The disk is a file with an ext4 system of its own, mounted by loop, which asks for the rights of root. A disk that
failed stays so until it is mounted anew, and a frozen one keeps all writers waiting. The clock is that of a library that is loaded before libc
(``LD_PRELOAD``) and adds seconds to the time of day; it needs a C compiler. The machine's own clock is left alone.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

DISK = 4096  # MB of the disk of the state, a sparse file: a history of two hours takes some hundred, a restored copy as much again
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile const double *ahead;
__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("LABELWISE_SOAK_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (page != MAP_FAILED) ahead = page;
}
static time_t more(void) { return ahead ? (time_t)*ahead : 0; }
int clock_gettime(clockid_t which, struct timespec *at) {
  int code = syscall(SYS_clock_gettime, which, at);
  if (!code && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) at->tv_sec += more();
  return code;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  int code = syscall(SYS_gettimeofday, at, zone);
  if (!code && at) at->tv_sec += more();
  return code;
}
time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
int sem_timedwait(sem_t *restrict one, const struct timespec *restrict until) {
  struct timespec end = {until->tv_sec - more(), until->tv_nsec};
  return sem_clockwait(one, CLOCK_REALTIME, &end);
}
"""


def _succeeds(*words: str) -> bool:
    return bool(shutil.which(words[0])) and not subprocess.run(words, capture_output=True, check=False).returncode


class Disk:
    """A small disk of its own under a folder."""

    def __init__(self, home: Path, image: Path) -> None:
        self.home, self.image = home, image
        with image.open("wb") as file:
            file.truncate(DISK << 20)
        self.mounted = _succeeds("mkfs.ext4", "-q", "-m", "0", str(image)) and self._mount()

    def _mount(self) -> bool:
        return _succeeds("mount", "-o", "loop", str(self.image), str(self.home))

    def _unmount(self) -> None:
        for _ in range(100):
            if not self.home.is_mount() or _succeeds("umount", str(self.home)):
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.home} is still in use ten seconds after the service was killed")

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """While open, there is no room on the disk."""
        ballast, size = self.home / "ballast", DISK << 20
        with ballast.open("wb") as file:
            while size >= 1024:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2
        try:
            yield
        finally:
            ballast.unlink()

    def fail(self) -> None:
        """Let the disk fail once all that was synced is on it: from then on it can neither be written nor read.

        To abort the file system (``mount -o remount,abort``) would be no fair fault: plain SQLite lost commits that it had acknowledged in 8 of 32
        tries of that.
        """
        folder = os.open(self.home, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", 0))
        finally:
            os.close(folder)

    def mend(self) -> None:
        """Mount a disk that failed anew; nobody may use it."""
        for _ in range(60):
            self._unmount()
            subprocess.run(["e2fsck", "-p", str(self.image)], check=False, capture_output=True)
            if self._mount() and self._takes_files():
                return
            time.sleep(1)  # a namespace of another program still holds the failed file system
        raise RuntimeError(f"{self.image} cannot be mounted again")

    def _takes_files(self) -> bool:
        """Return whether a file can be written: a mount of a file system that failed says so only then."""
        try:
            (self.home / "try").write_bytes(b"try")
            (self.home / "try").unlink()
        except OSError:
            return False
        return True

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """While open, whoever writes to the disk waits."""
        await asyncio.to_thread(subprocess.run, ["fsfreeze", "-f", str(self.home)], check=True, capture_output=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "-u", str(self.home)], check=True, capture_output=True)

    def close(self) -> None:
        """Take the disk away."""
        if self.mounted:
            _succeeds("umount", "--lazy", str(self.home))


class Clock:
    """The time of day of processes with these variables, which can be set ahead and back."""

    def __init__(self, folder: Path) -> None:
        source, self.library, self.ahead = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(_CLOCK)
        self.ahead.write_bytes(bytes(8))
        self.built = _succeeds("cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source))

    @property
    def variables(self) -> Mapping[str, str]:
        """What the environment of a process needs."""
        there = {"LD_PRELOAD": str(self.library), "LABELWISE_SOAK_CLOCK": str(self.ahead)}
        return there if self.built else {}

    def jump(self, seconds: float) -> None:
        """Set the clock so far ahead of the machine's, or back, for all processes at once."""
        with self.ahead.open("r+b") as file:  # in place: the page is mapped
            file.write(struct.pack("d", seconds))
