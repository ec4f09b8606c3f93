// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * statdump - what the kernel counted about reclaim, swap, CMA and GCMA
 *
 * Prints one line {"type":"gcma_stats"}: fields of /proc/vmstat, and all files
 * of all areas below /sys/kernel/mm/gcma and /sys/kernel/mm/cma. Numbers are
 * numbers, anything else is text. What the kernel does not have is left out.
 *
 *   --label TEXT   repeated in the line
 *   --seed N       accepted like everywhere, means nothing here
 */
#include "options.h"

#define CMA_SYSFS	"/sys/kernel/mm/cma"

static const char *const vmstat_fields[] = {
	"gcma_", "workingset_", "pgmajfault", "pswp", "pgscan", "pgsteal",
	"cma_", "allocstall", "oom_kill", "nr_free_pages", "nr_free_cma",
	"nr_inactive_", "nr_active_", "nr_dirty", "swap_ra", NULL,
};

struct areas {
	struct json *json;
	char open[128];		/* the area whose members are being printed */
};

static void area_close(struct areas *a)
{
	if (*a->open)
		json_close(a->json, "}");
	*a->open = 0;
}

/* Files come sorted, those of an area one after the other. */
static void area_file(void *arg, const char *rel, const char *text)
{
	const char *slash = strchr(rel, '/');
	struct areas *a = arg;
	size_t len;
	u64 value;

	if (!slash) {
		area_close(a);
	} else {
		len = (size_t)(slash - rel);
		if (strlen(a->open) != len || strncmp(a->open, rel, len)) {
			area_close(a);
			memcpy(a->open, rel, len);
			a->open[len] = 0;
			json_open(a->json, a->open, "{");
		}
		rel = slash + 1;
	}
	if (text_is_u64(text, &value))
		json_u64(a->json, rel, value);
	else
		json_str(a->json, rel, text);
}

static void dump(struct json *j, const char *key, const char *dir)
{
	struct areas a = { .json = j };

	json_open(j, key, "{");
	for_each_file(dir, "", 2, area_file, &a);
	area_close(&a);
	json_close(j, "}");
}

int main(int argc, char **argv)
{
	static struct fields vm;
	const char *label = NULL;
	const struct setting settings[] = {
		{ "label", .text = &label },
		{ .name = "seed" },
		{ 0 },
	};
	struct json j;
	u32 i;

	settings_parse(argc, argv, settings);
	fields_read_vmstat(&vm);
	j = json_line("gcma_stats");
	if (label)
		json_str(&j, "label", label);
	json_u64(&j, "now_ns", now_ns());
	json_open(&j, "vmstat", "{");
	for (i = 0; i < vm.n; i++)
		if (has_prefix(vm.f[i].name, vmstat_fields))
			json_u64(&j, vm.f[i].name, vm.f[i].value);
	json_close(&j, "}");
	dump(&j, "areas", GCMA_SYSFS);
	dump(&j, "cma", CMA_SYSFS);
	json_end(&j);
	return 0;
}
