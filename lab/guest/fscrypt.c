// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * fscrypt - the key of an encrypted directory, /mnt/files, comes and goes
 *
 * Takes one of the last three:
 *
 *   --other        a key that no directory has, with one of the last two
 *   --encrypt      add the key; what will be in the empty directory is encrypted
 *   --add          add the key
 *   --remove       remove it; one line {"type":"removed"}, which says whether
 *                  files are busy and keep it
 */
#include "options.h"

#include <linux/fscrypt.h>
#include <sys/ioctl.h>

#define MOUNT	"/mnt"
#define DIRECTORY	MOUNT "/files"

static struct {
	bool other, encrypt, add, remove;
} opt;

static int open_dir(const char *name)
{
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s: %s", name, strerror(errno));
	return fd;
}

/* The one key that there is, or the other one; the kernel computes its identifier. */
static struct fscrypt_key_specifier add_key(int fs)
{
	static struct {
		struct fscrypt_add_key_arg arg;
		u8 raw[FSCRYPT_MAX_KEY_SIZE];
	} key;
	unsigned int i;

	key.arg.key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
	key.arg.raw_size = sizeof(key.raw);
	for (i = 0; i < sizeof(key.raw); i++)
		key.raw[i] = (u8)(7 * i + 1 + opt.other);
	if (ioctl(fs, FS_IOC_ADD_ENCRYPTION_KEY, &key))
		die("cannot add a key to " MOUNT ": %s", strerror(errno));
	return key.arg.key_spec;
}

static void encrypt(int fs)
{
	struct fscrypt_key_specifier key = add_key(fs);
	struct fscrypt_policy_v2 policy = {
		.version = FSCRYPT_POLICY_V2,
		.contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
		.filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
		.flags = FSCRYPT_POLICY_FLAGS_PAD_32,
	};
	int dir = open_dir(DIRECTORY);

	memcpy(policy.master_key_identifier, key.u.identifier,
	       sizeof(policy.master_key_identifier));
	if (ioctl(dir, FS_IOC_SET_ENCRYPTION_POLICY, &policy))
		die("cannot encrypt " DIRECTORY ": %s", strerror(errno));
	close(dir);
}

/* That of the directory. */
static struct fscrypt_key_specifier key_of_dir(void)
{
	struct fscrypt_get_policy_ex_arg get = { .policy_size = sizeof(get.policy) };
	struct fscrypt_key_specifier key = { .type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER };
	int dir = open_dir(DIRECTORY);

	if (ioctl(dir, FS_IOC_GET_ENCRYPTION_POLICY_EX, &get))
		die(DIRECTORY " is not encrypted: %s", strerror(errno));
	/* It would be busy itself. */
	close(dir);
	memcpy(key.u.identifier, get.policy.v2.master_key_identifier, sizeof(key.u.identifier));
	return key;
}

static void remove_key(int fs)
{
	struct fscrypt_remove_key_arg arg = {
		/* To add it once more tells what it is called. */
		.key_spec = opt.other ? add_key(fs) : key_of_dir(),
	};
	struct json j;

	if (ioctl(fs, FS_IOC_REMOVE_ENCRYPTION_KEY, &arg))
		die("cannot remove the key: %s", strerror(errno));
	j = json_line("removed");
	json_bool(&j, "busy", arg.removal_status_flags &
			      FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY);
	json_end(&j);
}

static const struct setting settings[] = {
	{ "other", .flag = &opt.other },
	{ "encrypt", .flag = &opt.encrypt },
	{ "add", .flag = &opt.add },
	{ "remove", .flag = &opt.remove },
	{ 0 },
};

int main(int argc, char **argv)
{
	int fs;

	settings_parse(argc, argv, settings);
	if (opt.add + opt.remove + opt.encrypt != 1)
		die("one of --encrypt, --add and --remove");
	fs = open_dir(MOUNT);
	if (opt.encrypt)
		encrypt(fs);
	else if (opt.add)
		add_key(fs);
	else
		remove_key(fs);
	return 0;
}
