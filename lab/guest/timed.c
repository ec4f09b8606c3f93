// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * timed - how long a command takes
 *
 *   timed NAME COMMAND...
 *
 * Prints one line {"type":"timed"} with the name and the nanoseconds from
 * before the command is started until it has ended. Ends with its status.
 */
#include "common.h"

#include <sys/wait.h>

int main(int argc, char **argv)
{
	struct json j;
	int status;
	pid_t child;
	u64 begun;

	if (argc < 3)
		die("timed NAME COMMAND...");
	begun = now_ns();
	child = fork();
	if (child < 0)
		die("fork: %s", strerror(errno));
	if (child == 0) {
		execvp(argv[2], argv + 2);
		die("%s: %s", argv[2], strerror(errno));
	}
	if (waitpid(child, &status, 0) != child)
		die("waitpid: %s", strerror(errno));
	j = json_line("timed");
	json_str(&j, "name", argv[1]);
	json_u64(&j, "ns", now_ns() - begun);
	json_end(&j);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
