// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layers are those that docs/pdio.md lists: each file is there, and needs only files above it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names in backticks between a sentence's beginning and its end.
fn listed(page: &str, beginning: &str) -> Vec<String> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = page.split_once(beginning).expect("the sentence");
    let (sentence, _) = rest.split_once(". ").expect("its end");
    let names = sentence.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// The modules of the crate that a file names, tests apart.
fn needed(text: &str) -> BTreeSet<String> {
    let (code, _) = text
        .split_once("#[cfg(test)]\nmod tests")
        .unwrap_or((text, ""));
    let code: String = code
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let part = match rest.strip_prefix('{') {
            Some(list) => list.split_once(';').map_or(list, |(list, _)| list),
            None => rest
                .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
                .unwrap_or(""),
        };
        let words = part.split([',', '{', '}']);
        let first = |word: &str| word.trim().split("::").next().unwrap_or("").to_owned();
        found.extend(words.map(first));
    }
    found
}

#[test]
fn each_file_needs_only_those_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/pdio.md")).expect("docs/pdio.md");
    for (krate, beginning) in [
        (
            "pdio",
            "Each file of the crate needs only those before it in this list:",
        ),
        (
            "pdio-preload",
            "Each file of the library needs only those before it in this list:",
        ),
    ] {
        let order = listed(&page, beginning);
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(root.join("crates").join(krate).join("src")).expect("sources") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            if path.is_dir() || name == "lib" {
                continue;
            }
            let place = order.iter().position(|listed| *listed == name);
            let place = place.unwrap_or_else(|| panic!("{krate}: {name} is not listed"));
            let text = fs::read_to_string(&path).expect("source");
            for other in needed(&text) {
                let above = order.iter().position(|listed| *listed == other);
                assert!(
                    above.is_none_or(|above| above <= place),
                    "{krate}: {name} needs {other}, which is listed after it"
                );
            }
            files.insert(name);
        }
        let listed: BTreeSet<String> = order.into_iter().collect();
        assert_eq!(files, listed, "{krate}");
    }
}
