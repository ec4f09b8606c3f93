// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * pattern - say whether each frame of a recording is the one that its index names
 *
 * The kernel's virtual camera can be set so that its picture is a function of
 * how often the camera has ticked: coloured squares that move by two pixels and
 * one line a tick, and no text. So one picture at rest, taken with plain mmap()
 * and no program of ours, gives every byte of all others:
 *
 *	picture(k)[y][x] = rest[(y + k) % height][(x + 2 * k) % width]
 *
 * The camera's thread looks at the clock at each tick and counts frames by it,
 * which makes k = sequence + lead, where lead
 *
 *   is 0, or -1 if the first tick came late;
 *   grows by one when the thread woke too early and gave a number twice, which
 *   it may do where painting takes half the time of a frame.
 *
 * It never shrinks, and grows by little. A buffer that still has the frame of a
 * time before, or that was written over by the next, would need a lead that is
 * off by the number of buffers; and a frame that is torn is no picture at all.
 *
 * --set: sets the camera so; with --still the picture does not move.
 * --learn FILE: the same, writes the picture at rest to FILE, and looks that
 * pictures which move are as said above.
 * --check FILE: reads FILE and FILE.index; one line {"type":"pattern"}.
 * --count: prints the low eight bits of the camera's last number.
 * --drop N: from now on the camera drops so many of a hundred frames.
 * --damage: the next frame is flagged as broken.
 *
 *   --device PATH  (/dev/video0)
 *   --format CODE  one of two bytes a pixel (YUYV)
 *   --rest FILE    what --learn wrote
 *   --photo FILE   in how many frames of the recording are the bytes of this one?
 *   --width N      (640)
 *   --height N     (480)
 *   --case NAME    repeated in the line
 */
#include "options.h"

#include <linux/videodev2.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* as in drivers/media/test-drivers/vivid/vivid-ctrls.c */
#define VIVID_RO_INTEGER	(V4L2_CID_USER_BASE | 0xf00c)
#define VIVID_BASE		(0x00f00000 | 0xf000)
#define VIVID_TEST_PATTERN	(VIVID_BASE + 0)
#define VIVID_OSD_TEXT_MODE	(VIVID_BASE + 1)
#define VIVID_HOR_MOVEMENT	(VIVID_BASE + 2)
#define VIVID_VERT_MOVEMENT	(VIVID_BASE + 3)
#define VIVID_PERC_DROPPED	(VIVID_BASE + 64)
#define VIVID_DQBUF_ERROR	(VIVID_BASE + 66)
#define COLOR_SQUARES		4
#define NO_TEXT			2
#define MOVE_SLOWLY		2
#define AT_REST			3
#define PIXELS_A_TICK		2
#define LINES_A_TICK		1

#define BYTES_A_PIXEL	2
#define BUFFERS		4u
#define FRAMES_LEARNT	8
/* no two pictures of so many ticks in a row are the same */
#define TICKS		512u
/* how often a number may come again */
#define AGAIN		2u
/* ends what hangs: no emulator on a busy host takes nearly as long */
#define FRAME_TIMEOUT_MS	300000

static struct {
	const char *device, *learn, *check, *photo, *rest, *name, *format;
	u32 width, height, drop;
	bool set, still, count, damage;
} opt = {
	.device = "/dev/video0", .name = "", .format = "YUYV", .width = 640, .height = 480,
	.drop = UINT32_MAX,
};

static size_t line_bytes, frame_bytes;
static u8 *rest;

/* -------------------------------------------------------------- pictures */

/* Returns how many bytes of a frame are as in the picture of this tick. */
static size_t same(const u8 *frame, u64 tick)
{
	size_t shift = PIXELS_A_TICK * tick % opt.width * BYTES_A_PIXEL;
	size_t part = line_bytes - shift, at;
	u32 y;

	for (y = 0; y < opt.height; y++, frame += line_bytes) {
		const u8 *line = rest + (y + LINES_A_TICK * tick) %
				 opt.height * line_bytes;

		if (!memcmp(frame, line + shift, part) &&
		    !memcmp(frame + part, line, shift))
			continue;
		for (at = 0; at < line_bytes; at++)
			if (frame[at] != line[(shift + at) % line_bytes])
				return y * line_bytes + at;
	}
	return frame_bytes;
}

/* Returns the first tick from `tick` on, of so many, whose picture it is; or -1. */
static s64 tick_of(const u8 *frame, s64 tick, u32 ticks)
{
	for (; ticks--; tick++)
		if (tick >= 0 && same(frame, (u64)tick) == frame_bytes)
			return tick;
	return -1;
}

/* What is known of a recording so far. */
struct run {
	u64 frames, lost, damaged, repeated, photographed;
	u64 next, first, last, end;
	u64 unseen;	/* frames since the last that was looked at */
	s64 lead, tick, first_tick;
	bool begun;	/* there was a number */
	char wrong[160];
};

static void __attribute__((format(printf, 2, 3)))
is_wrong(struct run *r, const char *fmt, ...)
{
	va_list ap;

	if (r->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(r->wrong, sizeof(r->wrong), fmt, ap);
	va_end(ap);
}

/* The camera gave this number, or it is named as missing. */
static void number(struct run *r, u64 sequence)
{
	if (r->begun && sequence + 1 == r->next)
		r->repeated++;
	else if (r->begun && sequence != r->next)
		is_wrong(r, "%" PRIu64 " is where %" PRIu64 " should be",
			 sequence, r->next);
	r->begun = true;
	r->next = sequence + 1;
}

static void look(struct run *r, const u8 *frame, u64 sequence)
{
	s64 least = r->frames ? (s64)sequence + r->lead : (s64)sequence - 1;
	u64 unseen = r->frames ? r->unseen : sequence + 1;
	u64 ticks = 1 + AGAIN * (1 + unseen);
	s64 tick = tick_of(frame, least, ticks < TICKS ? (u32)ticks : TICKS);

	if (tick < 0)
		is_wrong(r, "%" PRIu64 " is no picture from tick %" PRId64
			 " on, of which its first %zu bytes are", sequence,
			 least, same(frame, least < 0 ? 0 : (u64)least));
	else if (r->frames && tick <= r->tick)
		is_wrong(r, "%" PRIu64 " is the picture of tick %" PRId64
			 " after that of %" PRId64, sequence, tick, r->tick);
	if (!r->frames) {
		r->first = sequence;
		r->first_tick = tick;
	}
	r->lead = tick - (s64)sequence;
	r->tick = tick;
	r->unseen = 0;
	r->last = sequence;
	r->frames++;
}

static void report(const struct run *r, u64 size)
{
	struct json j = json_line("pattern");

	json_str(&j, "case", opt.name);
	json_u64(&j, "frames", r->frames);
	json_u64(&j, "lost", r->lost);
	json_u64(&j, "damaged", r->damaged);
	json_u64(&j, "repeated", r->repeated);
	json_u64(&j, "photographed", r->photographed);
	json_u64(&j, "first", r->first);
	json_u64(&j, "last", r->last);
	json_s64(&j, "first_tick", r->first_tick);
	json_s64(&j, "last_tick", r->tick);
	json_u64(&j, "frame_bytes", frame_bytes);
	json_u64(&j, "size", size);
	json_u64(&j, "indexed", r->end);
	json_str(&j, "wrong", r->wrong);
	json_end(&j);
}

/* ------------------------------------------------------------- a recording */

static void read_all(const char *path, int fd, u8 *to, size_t bytes, u64 at)
{
	ssize_t n;

	for (; bytes; to += n, bytes -= (size_t)n, at += (u64)n) {
		n = pread(fd, to, bytes, (off_t)at);
		if (n <= 0)
			die("%s ends at %" PRIu64, path, at);
	}
}

/* Reads a file of one frame. */
static void read_frame(const char *path, u8 *to)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || (size_t)st.st_size != frame_bytes)
		die("%s is no frame of %zu bytes", path, frame_bytes);
	read_all(path, fd, to, frame_bytes, 0);
	close(fd);
}

static void check(const char *path)
{
	char index[4096], line[256];
	u8 *frame = xalloc(frame_bytes), *photo = NULL;
	struct run r = { 0 };
	struct stat st;
	FILE *lines;
	int fd, named;

	if (opt.photo) {
		photo = xalloc(frame_bytes);
		read_frame(opt.photo, photo);
	}
	snprintf(index, sizeof(index), "%s.index", path);
	lines = fopen(index, "re");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (!lines || fd < 0 || fstat(fd, &st))
		die("cannot read %s: %s", lines ? path : index, strerror(errno));
	while (fgets(line, sizeof(line), lines)) {
		u64 a, b, seconds, micros, at, bytes;

		if (!strchr(line, '\n'))
			is_wrong(&r, "half a line: %s", line);
		if (!strncmp(line, "# nocopy-record 1: ", 19))
			continue;
		named = sscanf(line, "# lost %" SCNu64 "-%" SCNu64, &a, &b);
		if (named > 0) {
			b = named == 1 ? a : b;
			number(&r, a);
			r.next = b + 1;
			r.lost += b - a + 1;
		} else if (sscanf(line, "# damaged %" SCNu64, &a) == 1) {
			number(&r, a);
			r.damaged++;
			r.unseen++;
		} else if (!strncmp(line, "# suspected ", 12)) {
			/* the host was busy: the camera's thread was late */
			continue;
		} else if (sscanf(line, "%" SCNu64 " %" SCNu64 ".%" SCNu64
				  " %" SCNu64 " %" SCNu64, &a, &seconds,
				  &micros, &at, &bytes) == 5) {
			number(&r, a);
			if (at != r.end || bytes != frame_bytes)
				is_wrong(&r, "frame %" PRIu64 " is said to have %"
					 PRIu64 " bytes at %" PRIu64, a, bytes, at);
			r.end = at + bytes;
			if (r.end > (u64)st.st_size) {
				is_wrong(&r, "frame %" PRIu64 " is behind the end", a);
				break;
			}
			read_all(path, fd, frame, frame_bytes, at);
			look(&r, frame, a);
			if (photo && !memcmp(frame, photo, frame_bytes))
				r.photographed++;
		} else {
			is_wrong(&r, "what is '%s'?", line);
		}
	}
	report(&r, (u64)st.st_size);
	fclose(lines);
	close(fd);
	free(photo);
	free(frame);
}

/* -------------------------------------------------------------- the camera */

static int camera;

static void call(unsigned long request, void *arg, const char *what)
{
	int ret;

	do {
		ret = ioctl(camera, request, arg);
	} while (ret && errno == EINTR);
	if (ret)
		die("%s: %s: %s", opt.device, what, strerror(errno));
}

static void set(u32 id, int value)
{
	struct v4l2_control control = { .id = id, .value = value };

	call(VIDIOC_S_CTRL, &control, "cannot set a control");
}

static void move(int how)
{
	set(VIVID_HOR_MOVEMENT, how);
	set(VIVID_VERT_MOVEMENT, how);
}

/* Takes so many frames and has a look at each, or keeps the last as the one at rest. */
static void take(u32 frames, struct run *r)
{
	struct v4l2_requestbuffers req = {
		.count = BUFFERS, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_MMAP,
	};
	struct v4l2_format fmt = { .type = V4L2_BUF_TYPE_VIDEO_CAPTURE };
	int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
	struct v4l2_buffer buf;
	u8 *map[BUFFERS];
	u32 i;

	fmt.fmt.pix.width = opt.width;
	fmt.fmt.pix.height = opt.height;
	memcpy(&fmt.fmt.pix.pixelformat, opt.format, 4);
	call(VIDIOC_S_FMT, &fmt, "cannot set the format");
	if (fmt.fmt.pix.sizeimage != frame_bytes)
		die("%s: frames of %u bytes instead of %zu", opt.device,
		    fmt.fmt.pix.sizeimage, frame_bytes);
	call(VIDIOC_REQBUFS, &req, "no buffers");
	if (req.count > BUFFERS)
		die("%s: %u buffers", opt.device, req.count);
	for (i = 0; i < req.count; i++) {
		buf = (struct v4l2_buffer){
			.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
			.memory = V4L2_MEMORY_MMAP, .index = i,
		};
		call(VIDIOC_QUERYBUF, &buf, "no buffer");
		map[i] = mmap(NULL, buf.length, PROT_READ, MAP_SHARED, camera,
			      (off_t)buf.m.offset);
		if (map[i] == MAP_FAILED)
			die("cannot map a buffer: %s", strerror(errno));
		call(VIDIOC_QBUF, &buf, "cannot lend a buffer");
	}
	call(VIDIOC_STREAMON, &type, "cannot start");
	for (i = 0; i < frames; i++) {
		struct pollfd ready = { .fd = camera, .events = POLLIN };

		if (poll(&ready, 1, FRAME_TIMEOUT_MS) <= 0)
			die("no frame came");
		buf = (struct v4l2_buffer){
			.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
			.memory = V4L2_MEMORY_MMAP,
		};
		call(VIDIOC_DQBUF, &buf, "cannot take a frame");
		if (r)
			look(r, map[buf.index], buf.sequence);
		else
			memcpy(rest, map[buf.index], frame_bytes);
		call(VIDIOC_QBUF, &buf, "cannot lend a buffer");
	}
	call(VIDIOC_STREAMOFF, &type, "cannot stop");
	for (i = 0; i < req.count; i++)
		munmap(map[i], frame_bytes);
	req.count = 0;
	call(VIDIOC_REQBUFS, &req, "cannot give the buffers back");
}

static void prepare(void)
{
	set(VIVID_TEST_PATTERN, COLOR_SQUARES);
	set(VIVID_OSD_TEXT_MODE, NO_TEXT);
	move(opt.still ? AT_REST : MOVE_SLOWLY);
}

static void learn(const char *path)
{
	struct run r = { 0 };
	FILE *file;

	prepare();
	move(AT_REST);
	take(1, NULL);
	if (tick_of(rest, 1, TICKS) >= 0)
		die("two of %u pictures are the same", TICKS);
	file = fopen(path, "we");
	if (!file || fwrite(rest, frame_bytes, 1, file) != 1 || fclose(file))
		die("cannot write %s: %s", path, strerror(errno));
	move(MOVE_SLOWLY);
	take(FRAMES_LEARNT, &r);
	report(&r, 0);
}

static u32 last_number(void)
{
	struct v4l2_control control = { .id = VIVID_RO_INTEGER };

	call(VIDIOC_G_CTRL, &control, "has no count");
	return (u32)control.value;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{ "device", .text = &opt.device },
		{ "learn", .text = &opt.learn },
		{ "check", .text = &opt.check },
		{ "photo", .text = &opt.photo },
		{ "format", .text = &opt.format },
		{ "rest", .text = &opt.rest },
		{ "case", .text = &opt.name },
		{ "width", .number = &opt.width },
		{ "height", .number = &opt.height },
		{ "drop", .number = &opt.drop },
		{ "set", .flag = &opt.set },
		{ "still", .flag = &opt.still },
		{ "count", .flag = &opt.count },
		{ "damage", .flag = &opt.damage },
		{ 0 },
	};

	settings_parse(argc, argv, settings);
	if (!opt.width || !opt.height || opt.width % PIXELS_A_TICK)
		die("no frames of %u x %u", opt.width, opt.height);
	if (strlen(opt.format) != 4)
		die("a format has four letters, not '%s'", opt.format);
	line_bytes = (size_t)opt.width * BYTES_A_PIXEL;
	frame_bytes = line_bytes * opt.height;
	rest = xalloc(frame_bytes);
	if (opt.check) {
		if (!opt.rest)
			die("--check needs --rest");
		read_frame(opt.rest, rest);
		check(opt.check);
		return 0;
	}
	camera = open(opt.device, O_RDWR | O_CLOEXEC);
	if (camera < 0)
		die("cannot open %s: %s", opt.device, strerror(errno));
	if (opt.set)
		prepare();
	if (opt.learn)
		learn(opt.learn);
	if (opt.drop != UINT32_MAX)
		set(VIVID_PERC_DROPPED, (int)opt.drop);
	if (opt.damage)
		set(VIVID_DQBUF_ERROR, 0);
	if (opt.count)
		printf("%u\n", last_number());
	return 0;
}
