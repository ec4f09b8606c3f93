/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Options of a program as a table: a name, and where its value goes.
 *
 *	static const struct setting settings[] = {
 *		{ "dir", .text = &opt.dir },
 *		{ "seconds", .number = &opt.seconds },
 *		{ "prepare", .flag = &opt.prepare },
 *		{ 0 },
 *	};
 */
#ifndef LAB_GUEST_OPTIONS_H
#define LAB_GUEST_OPTIONS_H

#include "common.h"

#define SETTINGS_MAX	32

/* One of the pointers is set. Without any the value is read and means nothing. */
struct setting {
	const char *name;
	const char **text;
	u32 *number;
	int *signed_number;
	u64 *large;
	bool *flag;
	void (*call)(const char *value);
};

static inline int parse_int(const char *what, const char *s)
{
	u32 v = parse_u32(what, *s == '-' ? s + 1 : s);

	if (v > INT32_MAX)
		die("--%s %s is too large", what, s);
	return *s == '-' ? -(int)v : (int)v;
}

static inline void settings_parse(int argc, char **argv,
				  const struct setting *settings)
{
	struct option options[SETTINGS_MAX + 1] = { 0 };
	int at = 0, n, c;

	for (n = 0; settings[n].name; n++) {
		if (n == SETTINGS_MAX)
			die("more than %d options", SETTINGS_MAX);
		options[n].name = settings[n].name;
		options[n].has_arg = !settings[n].flag;
	}
	while ((c = getopt_long(argc, argv, "", options, &at)) != -1) {
		const struct setting *s = &settings[at];

		if (c)
			usage(options);
		if (s->text)
			*s->text = optarg;
		else if (s->number)
			*s->number = parse_u32(s->name, optarg);
		else if (s->signed_number)
			*s->signed_number = parse_int(s->name, optarg);
		else if (s->large)
			*s->large = parse_u64(s->name, optarg);
		else if (s->flag)
			*s->flag = true;
		else if (s->call)
			s->call(optarg);
	}
	if (optind < argc)
		die("what is '%s'?", argv[optind]);
}

#endif /* LAB_GUEST_OPTIONS_H */
