# SPDX-License-Identifier: MIT OR Apache-2.0
# Help for a machine on which the lab has not set itself up: of each command its name, what it does and its
# options, read from where they are defined, nocopy_lab/cli.py. wanted: the name of one of them, or anything else.

/^@lab\.command\(/ {
	inside = 1
	options = ""
	name = match($0, /"[a-z-]+"/) ? substr($0, RSTART + 1, RLENGTH - 2) : ""
}
/^@click\.group\(/ { inside = 1; options = ""; name = "lab" }
!inside { next }

/^(@click\.option\(| )/ && match($0, /"--[a-z-]+"/) { options = options " " substr($0, RSTART + 1, RLENGTH - 2) }
# One that several commands have is made by a function, or a variable, of its name.
/^@_?[a-z_]+(\(|$)/ {
	option = substr($0, $0 ~ /^@_/ ? 3 : 2)
	sub(/\(.*/, "", option)
	gsub(/_/, "-", option)
	options = options " --" option
}
/^def / && name == "" { name = substr($2, 1, index($2, "(") - 1) }
/^    """/ { text = ""; document = 1 }
document { text = text " " $0 }
document && /"""$/ {
	gsub(/"""/, "", text)
	gsub(/ +/, " ", text)
	does[name] = substr(text, 2)
	takes[name] = options
	order[++count] = name
	inside = document = 0
}

END {
	if (wanted in does && wanted != "lab") {
		print "Usage: lab/lab " wanted " [OPTIONS] ...\n\n  " does[wanted]
		if (takes[wanted] != "") print "\nOptions:" takes[wanted]
	} else {
		print "Usage: lab/lab COMMAND [OPTIONS] ...\n\n  " does["lab"] "\n\nCommands:"
		for (n = 2; n <= count; n++) {
			sub(/[;.] .*/, ".", does[order[n]])
			printf "  %-10s  %s\n", order[n], does[order[n]]
		}
	}
	print "\nThe lab has not set itself up here. The first command does that; --help says more from then on."
}
