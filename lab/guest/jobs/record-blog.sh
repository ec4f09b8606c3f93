# SPDX-License-Identifier: MIT OR Apache-2.0
# Recordings beside a server of blogs.
. /lib/record.sh

prepare_recorders blog_files
phase blog
begin_blog
eval "$beside"
phase end
end_load
