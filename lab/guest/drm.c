// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * drm - dumb buffers of a display, as a compositor without a GPU has them
 *
 * Ten times: create buffers, map them, see that they are zeroed,
 * fill them, look that nobody else wrote to them, destroy them. One line
 * {"type":"drm"} each; exit status 1 if any could not be had or was wrong.
 */
#include "common.h"

#include <sys/ioctl.h>
#include <sys/mman.h>

/* As in <drm/drm_mode.h>, which Debian's kernel headers leave out. */
struct drm_mode_create_dumb {
	u32 height, width, bpp, flags;
	u32 handle, pitch;
	u64 size;
};

struct drm_mode_map_dumb {
	u32 handle, pad;
	u64 offset;
};

struct drm_mode_destroy_dumb {
	u32 handle;
};

#define DRM_IOCTL_MODE_CREATE_DUMB	_IOWR('d', 0xb2, struct drm_mode_create_dumb)
#define DRM_IOCTL_MODE_MAP_DUMB		_IOWR('d', 0xb3, struct drm_mode_map_dumb)
#define DRM_IOCTL_MODE_DESTROY_DUMB	_IOWR('d', 0xb4, struct drm_mode_destroy_dumb)

#define DEVICE		"/dev/dri/card0"
#define WIDTH		1280
#define HEIGHT		720
#define BUFFERS		3	/* held at a time */
#define REPS		10

struct buffer {
	struct drm_mode_create_dumb dumb;
	word *map;
};

static bool buffer_get(int fd, struct buffer *b)
{
	struct drm_mode_map_dumb where = { 0 };

	b->dumb = (struct drm_mode_create_dumb){
		.width = WIDTH, .height = HEIGHT, .bpp = 32,
	};
	if (ioctl(fd, DRM_IOCTL_MODE_CREATE_DUMB, &b->dumb))
		return false;
	where.handle = b->dumb.handle;
	if (ioctl(fd, DRM_IOCTL_MODE_MAP_DUMB, &where))
		die("cannot map a dumb buffer: %s", strerror(errno));
	b->map = mmap(NULL, b->dumb.size, PROT_READ | PROT_WRITE, MAP_SHARED,
		      fd, (off_t)where.offset);
	if ((void *)b->map == MAP_FAILED)
		die("cannot map a dumb buffer: %s", strerror(errno));
	return true;
}

static void buffer_put(int fd, struct buffer *b)
{
	struct drm_mode_destroy_dumb old = { .handle = b->dumb.handle };

	munmap(b->map, b->dumb.size);
	if (ioctl(fd, DRM_IOCTL_MODE_DESTROY_DUMB, &old))
		die("cannot destroy a dumb buffer: %s", strerror(errno));
}

static bool rep(int fd, u32 number)
{
	struct buffer buffers[BUFFERS];
	struct json j = json_line("drm");
	u64 dirty = 0, wrong = 0, base = mix64(1 + number), i;
	u32 got, b;
	bool ok;

	for (got = 0; got < BUFFERS; got++)
		if (!buffer_get(fd, &buffers[got]))
			break;
	for (b = 0; b < got; b++) {
		for (i = 0; i < buffers[b].dumb.size / 8; i++) {
			dirty += buffers[b].map[i] != 0;
			buffers[b].map[i] = base + ((u64)b << 32) + i;
		}
	}
	for (b = 0; b < got; b++) {
		for (i = 0; i < buffers[b].dumb.size / 8; i++)
			wrong += buffers[b].map[i] != base + ((u64)b << 32) + i;
		buffer_put(fd, &buffers[b]);
	}
	ok = got == BUFFERS && !dirty && !wrong;
	json_u64(&j, "rep", number);
	json_u64(&j, "buffers", got);
	json_u64(&j, "not_zeroed", dirty);
	json_u64(&j, "wrong", wrong);
	json_bool(&j, "ok", ok);
	json_end(&j);
	return ok;
}

int main(void)
{
	bool ok = true;
	u32 number;
	int fd;

	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die("cannot open " DEVICE ": %s", strerror(errno));
	for (number = 0; number < REPS; number++)
		ok = rep(fd, number) && ok;
	return !ok;
}
