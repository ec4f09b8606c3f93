// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * camera - take photos with /dev/video0, and time each shot
 *
 * A shot is all that an application does between "the user presses the button"
 * and "the picture is there": open the device, ask for buffers, stream, wait
 * for the first frame, give everything back. One line {"type":"shot"} each:
 *
 *   pieces_ns    getting the pieces of contiguous memory, see below
 *   reqbufs_ns   VIDIOC_REQBUFS, where the memory is allocated
 *   reqbufs_switches   how often other threads took the processor in it
 *   frame_ns     from open() to the first frame
 *   total_ns     from open() to after close()
 *
 * A shot that got no memory, fewer buffers than it wanted, or no frame within
 * ten seconds is reported with "ok":false and the program goes on.
 *
 *   --width N         (1280)
 *   --height N        (720)
 *   --buffers N       (4)
 *   --pieces N        take so many pieces of contiguous memory first, and give
 *		       them back after the shot, as the camera of the Raspberry
 *		       Pi does with 25 of 64 pages (0)
 *   --shots N         (30)
 *   --interval-ms N   pause between two shots (0)
 *   --jitter-ms N     random part added to each pause (0)
 *   --nice N          its priority (0)
 *   --seed N          of the jitter (1)
 *
 * Of the pieces, each line has the sum of their times and all of them, as the
 * kernel took them.
 */
#include "options.h"

#include <linux/videodev2.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "bench_abi.h"

#define DEVICE		"/dev/video0"
#define BUFFERS_MAX	32
#define PIECES_MAX	256
#define PIECE_PAGES	64
/* ends what hangs: no emulator on a busy host takes nearly as long */
#define FRAME_TIMEOUT_MS	300000

static struct {
	u32 width, height, buffers, pieces, shots;
	u32 interval_ms, jitter_ms;
	int nice;
	u64 seed;
} opt = {
	.width = 1280, .height = 720, .buffers = 4, .shots = 30, .seed = 1,
};

/* /dev/cma_bench, which has the pieces */
static int bench = -1;
static struct cma_bench_op pieces[PIECES_MAX];

struct shot {
	u64 pieces_ns, reqbufs_ns, reqbufs_switches, frame_ns, total_ns;
	u32 pieces;		/* granted */
	u32 buffers;		/* granted */
	u32 frame_bytes;
	const char *failed;	/* the step, NULL if all went well */
	int error;
};

static int xioctl(int fd, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret && errno == EINTR);
	return ret;
}

static bool shot_failed(struct shot *s, const char *step, int error)
{
	if (!s->failed) {
		s->failed = step;
		s->error = error;
	}
	return false;
}

static void set_format(int fd)
{
	struct v4l2_capability cap = { 0 };
	struct v4l2_format fmt = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
	};

	if (xioctl(fd, VIDIOC_QUERYCAP, &cap))
		die(DEVICE " is no V4L2 device: %s", strerror(errno));
	if (!(cap.device_caps & V4L2_CAP_VIDEO_CAPTURE) ||
	    !(cap.device_caps & V4L2_CAP_STREAMING))
		die(DEVICE " (%s) does not capture by streaming",
		    (const char *)cap.card);
	fmt.fmt.pix.width = opt.width;
	fmt.fmt.pix.height = opt.height;
	fmt.fmt.pix.pixelformat = V4L2_PIX_FMT_YUYV;
	fmt.fmt.pix.field = V4L2_FIELD_ANY;
	if (xioctl(fd, VIDIOC_S_FMT, &fmt))
		die(DEVICE " refuses the format: %s", strerror(errno));
	if (fmt.fmt.pix.width != opt.width || fmt.fmt.pix.height != opt.height)
		die(DEVICE " offers %ux%u instead of %ux%u",
		    fmt.fmt.pix.width, fmt.fmt.pix.height, opt.width,
		    opt.height);
}

static bool take_pieces(struct shot *s)
{
	for (; s->pieces < opt.pieces; s->pieces++) {
		struct cma_bench_op *o = &pieces[s->pieces];
		int ret;

		*o = (struct cma_bench_op){ .pages = PIECE_PAGES };
		ret = xioctl(bench, CMA_BENCH_ALLOC, o);
		s->pieces_ns += o->ns;
		if (ret)
			return shot_failed(s, "piece", errno);
	}
	return true;
}

static void give_pieces(const struct shot *s)
{
	u32 i;

	for (i = 0; i < s->pieces; i++) {
		struct cma_bench_op o = pieces[i];

		if (xioctl(bench, CMA_BENCH_RELEASE, &o))
			die("cannot release a piece: %s", strerror(errno));
	}
}

/* How often the processor went to another thread that this one did not wait for. */
static u64 taken_away(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage: %s", strerror(errno));
	return (u64)usage.ru_nivcsw;
}

/* From the first buffer to the first frame; the caller cleans up. */
static bool stream(int fd, struct shot *s, void **map, size_t *size, u64 start)
{
	struct v4l2_requestbuffers req = {
		.count = opt.buffers,
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_MMAP,
	};
	int type = V4L2_BUF_TYPE_VIDEO_CAPTURE, n;
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct v4l2_buffer buf;
	u64 switches = taken_away(), before = now_ns();
	int ret = xioctl(fd, VIDIOC_REQBUFS, &req), error = errno;
	u32 i;

	s->reqbufs_ns = now_ns() - before;
	s->reqbufs_switches = taken_away() - switches;
	if (ret)
		return shot_failed(s, "REQBUFS", error);
	s->buffers = req.count;
	if (req.count < opt.buffers)
		return shot_failed(s, "REQBUFS granted too few", ENOMEM);
	if (req.count > BUFFERS_MAX)
		return shot_failed(s, "REQBUFS granted too many", E2BIG);

	for (i = 0; i < req.count; i++) {
		buf = (struct v4l2_buffer){
			.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
			.memory = V4L2_MEMORY_MMAP, .index = i,
		};
		if (xioctl(fd, VIDIOC_QUERYBUF, &buf))
			return shot_failed(s, "QUERYBUF", errno);
		size[i] = buf.length;
		map[i] = mmap(NULL, buf.length, PROT_READ | PROT_WRITE,
			      MAP_SHARED, fd, (off_t)buf.m.offset);
		if (map[i] == MAP_FAILED)
			return shot_failed(s, "mmap", errno);
		if (xioctl(fd, VIDIOC_QBUF, &buf))
			return shot_failed(s, "QBUF", errno);
	}
	if (xioctl(fd, VIDIOC_STREAMON, &type))
		return shot_failed(s, "STREAMON", errno);

	do {
		n = poll(&ready, 1, FRAME_TIMEOUT_MS);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return shot_failed(s, "no frame", n ? errno : ETIMEDOUT);
	buf = (struct v4l2_buffer){
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_MMAP,
	};
	if (xioctl(fd, VIDIOC_DQBUF, &buf))
		return shot_failed(s, "DQBUF", errno);
	s->frame_ns = now_ns() - start;
	s->frame_bytes = buf.bytesused;
	if (buf.flags & V4L2_BUF_FLAG_ERROR)
		return shot_failed(s, "frame is damaged", EIO);
	return true;
}

static void take(struct shot *s)
{
	struct v4l2_requestbuffers none = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_MMAP,
	};
	int type = V4L2_BUF_TYPE_VIDEO_CAPTURE, fd;
	size_t size[BUFFERS_MAX] = { 0 };
	void *map[BUFFERS_MAX];
	u64 start = now_ns();
	u32 i;

	for (i = 0; i < BUFFERS_MAX; i++)
		map[i] = MAP_FAILED;
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die("cannot open " DEVICE ": %s (vivid is in the kernel?)",
		    strerror(errno));
	set_format(fd);
	if (take_pieces(s))
		stream(fd, s, map, size, start);
	xioctl(fd, VIDIOC_STREAMOFF, &type);
	for (i = 0; i < BUFFERS_MAX; i++)
		if (map[i] != MAP_FAILED)
			munmap(map[i], size[i]);
	if (xioctl(fd, VIDIOC_REQBUFS, &none))
		shot_failed(s, "REQBUFS 0", errno);
	give_pieces(s);
	close(fd);
	s->total_ns = now_ns() - start;
}

static void report(u32 number, const struct shot *s)
{
	struct json j = json_line("shot");
	u32 i;

	json_u64(&j, "n", number);
	if (opt.pieces) {
		json_u64(&j, "pieces_ns", s->pieces_ns);
		json_open(&j, "pieces", "[");
		for (i = 0; i < s->pieces; i++)
			json_u64(&j, NULL, pieces[i].ns);
		json_close(&j, "]");
	}
	json_u64(&j, "reqbufs_ns", s->reqbufs_ns);
	json_u64(&j, "reqbufs_switches", s->reqbufs_switches);
	json_u64(&j, "frame_ns", s->frame_ns);
	json_u64(&j, "total_ns", s->total_ns);
	json_u64(&j, "buffers", s->buffers);
	json_u64(&j, "frame_bytes", s->frame_bytes);
	json_bool(&j, "ok", !s->failed);
	if (s->failed) {
		json_str(&j, "failed", s->failed);
		json_str(&j, "error", strerror(s->error));
	}
	json_end(&j);
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "width", .number = &opt.width },
		{ "height", .number = &opt.height },
		{ "buffers", .number = &opt.buffers },
		{ "pieces", .number = &opt.pieces },
		{ "shots", .number = &opt.shots },
		{ "interval-ms", .number = &opt.interval_ms },
		{ "jitter-ms", .number = &opt.jitter_ms },
		{ "nice", .signed_number = &opt.nice },
		{ "seed", .large = &opt.seed },
		{ 0 },
	};
	struct rng rng;
	u32 i;

	settings_parse(argc, argv, settings);
	if (!opt.buffers || opt.buffers > BUFFERS_MAX)
		die("--buffers must be 1 to %d", BUFFERS_MAX);
	if (opt.pieces > PIECES_MAX)
		die("--pieces must be %d at most", PIECES_MAX);
	if (opt.pieces) {
		bench = open("/dev/cma_bench", O_RDWR | O_CLOEXEC);
		if (bench < 0)
			die("cannot open /dev/cma_bench: %s", strerror(errno));
	}

	if (opt.nice && setpriority(PRIO_PROCESS, 0, opt.nice))
		die("cannot set --nice %d: %s", opt.nice, strerror(errno));
	rng = rng_make(opt.seed, 0);
	for (i = 0; i < opt.shots; i++) {
		struct shot s = { 0 };

		if (i)
			sleep_ms(opt.interval_ms +
				 rng_below(&rng, opt.jitter_ms + 1));
		take(&s);
		report(i, &s);
	}
	return 0;
}
