/* The wall clock of one process: the host's plus as many nanoseconds as a file says. Preloaded with LD_PRELOAD.
 *
 * The file, CLOCK_FILE, is created where it can be, so that all processes of a container share it. The monotonic clock
 * stays as it is. A wait until a moment of the wall clock ends when the host's clock reaches that moment less the
 * offset, as it does on a host whose clock is wrong; an offset that changes meanwhile does not move the end.
 *
 * libfaketime does the same under a lock, and Cassandra asks for the time from many threads at once: its start took
 * five times as long with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000
#define ON_MONOTONIC 2 /* glibc's bit in a condition's __wrefs, set by pthread_condattr_setclock */

static int (*host_clock)(clockid_t, struct timespec *);
static int (*host_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*host_cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
static int (*host_sem_timedwait)(sem_t *, const struct timespec *);
static const volatile int64_t *offset;

static int opened_file(void) {
  struct stat found;
  int file = open(CLOCK_FILE, O_RDONLY | O_CLOEXEC);
  if (file >= 0 && fstat(file, &found) == 0 && found.st_size >= (off_t)sizeof *offset) return file;
  if (file >= 0) close(file);
  const int64_t none = 0;
  file = open(CLOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0 && pwrite(file, &none, sizeof none, 0) != (ssize_t)sizeof none) {
    close(file);
    return -1;
  }
  return file;
}

__attribute__((constructor)) static void open_offset(void) {
  if (host_clock) return;
  host_cnd_timedwait = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
  host_sem_timedwait = (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
  /* Without a version the dynamic linker may find the function for conditions of glibc 2.2. */
  void *wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!wait) wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  host_cond_timedwait = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))wait;
  host_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int file = opened_file();
  void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (mapped != MAP_FAILED) offset = mapped;
}

static struct timespec moved(struct timespec at, int64_t nanoseconds) {
  int64_t rest = at.tv_nsec + nanoseconds % SECOND;
  at.tv_sec += nanoseconds / SECOND + (rest >= SECOND) - (rest < 0);
  at.tv_nsec = (rest + SECOND) % SECOND;
  return at;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  if (!host_clock) open_offset(); /* another library's constructor came first */
  int failed = host_clock(clock, at);
  if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  *at = moved(*at, *offset);
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  if (!host_clock) open_offset();
  if (!offset || condition->__data.__wrefs & ON_MONOTONIC) return host_cond_timedwait(condition, mutex, until);
  struct timespec then = moved(*until, -*offset);
  return host_cond_timedwait(condition, mutex, &then);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
  if (!host_clock) open_offset();
  if (!offset) return host_cnd_timedwait(condition, mutex, until);
  struct timespec then = moved(*until, -*offset);
  return host_cnd_timedwait(condition, mutex, &then);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  if (!host_clock) open_offset();
  if (!offset) return host_sem_timedwait(semaphore, until);
  struct timespec then = moved(*until, -*offset);
  return host_sem_timedwait(semaphore, &then);
}
