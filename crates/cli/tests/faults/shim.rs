//! Small C libraries that lie to the program about the disk, the wall clock or capitals, loaded before its own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one, and gives back what `LD_PRELOAD` takes.
pub(crate) fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&from, source).expect("written");
    let done =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&to).arg(&from).args(["-ldl"]).output();
    let done = done.expect("cc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// While `BROKEN_DISK` exists, every sync fails with EIO; `BROKEN_DISK.told` gets a byte for each that did: `d` for a
/// record's, `f` for another.
pub(crate) const BROKEN_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int broken(char kind) {
    char told[4096];
    const char *path = getenv("BROKEN_DISK");
    if (!path || access(path, F_OK) != 0) return 0;
    snprintf(told, sizeof told, "%s.told", path);
    int fd = open(told, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) { if (write(fd, &kind, 1) < 0) abort(); close(fd); }
    errno = EIO;
    return 1;
}
int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return broken('f') ? -1 : real(fd);
}
int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return broken('d') ? -1 : real(fd);
}
"#;

/// The wall clock is off by as many seconds as the file `WALL_OFFSET` says, as eight bytes.
pub(crate) const WALL_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;
__attribute__((constructor)) static void open_offset(void) {
    int fd = open(getenv("WALL_OFFSET"), O_RDONLY | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) abort();
    close(fd);
    offset = page;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, time);
    if (done == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *offset;
    return done;
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"#;

/// A file system that ignores capitals, for a machine that has none: what is not found is looked for once more among
/// the names of its folder.
pub(crate) const NO_CAPITALS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int folded(const char *path, char *found, size_t size) {
    const char *slash = strrchr(path, '/');
    char folder[4096];
    struct dirent *entry;
    DIR *dir;
    if (!slash || slash - path >= (long)sizeof folder) return 0;
    memcpy(folder, path, slash - path);
    folder[slash - path] = 0;
    if (!(dir = opendir(*folder ? folder : "/"))) return 0;
    int is = 0;
    while (!is && (entry = readdir(dir)))
        if (strcasecmp(entry->d_name, slash + 1) == 0)
            is = snprintf(found, size, "%s/%s", folder, entry->d_name) > 0;
    closedir(dir);
    return is;
}
int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict told) {
    int (*real)(int, const char *, int, unsigned, struct statx *) = dlsym(RTLD_NEXT, "statx");
    char found[8192];
    int done = real(dir, path, flags, mask, told);
    if (done != 0 && errno == ENOENT && folded(path, found, sizeof found)) done = real(dir, found, flags, mask, told);
    return done;
}
ssize_t readlink(const char *restrict path, char *restrict told, size_t size) {
    ssize_t (*real)(const char *, char *, size_t) = dlsym(RTLD_NEXT, "readlink");
    char found[8192];
    ssize_t done = real(path, told, size);
    if (done < 0 && errno == ENOENT && folded(path, found, sizeof found)) done = real(found, told, size);
    return done;
}
"#;
