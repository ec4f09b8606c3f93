// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layers are those that docs/brug.md lists: each file is there, and needs only files before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where the list begins; it ends with the sentence.
const BEGINNING: &str = "Each file of the crate needs only those before it in this list:";

fn listed(page: &str) -> Vec<String> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = page.split_once(BEGINNING).expect("the list");
    let (list, _) = rest.split_once(". ").expect("its end");
    list.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The text of a file without comments and tests.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let lines = text[..tests].lines();
    lines
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect()
}

/// The modules of the crate that code names: in `crate::a::b`, and in `crate::{a, b::{c, d}}`.
fn needed(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let mut depth = 0;
        let mut expected = true;
        for word in rest.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_')) {
            let (name, end) =
                word.split_at(word.len() - word.chars().last().map_or(0, char::len_utf8));
            if expected && !name.is_empty() {
                found.insert(name.to_owned());
                expected = false;
            }
            match end {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," if depth == 1 => expected = true,
                _ => {}
            }
            if depth == 0 && !name.is_empty() || end == ";" {
                break;
            }
        }
    }
    found
}

#[test]
fn names_of_modules_are_found_however_they_are_written() {
    let found = needed(&code(
        "use crate::{a, b::{self, c}, d::e};\n// crate::no\nuse crate::f::g;\n\
         fn h() { crate::i::j(k, l) }\n#[cfg(test)]\nmod tests { use crate::no; }\n",
    ));
    assert_eq!(Vec::from_iter(found), ["a", "b", "d", "f", "i"]);
}

#[test]
fn each_file_needs_only_those_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/brug.md")).expect("docs/brug.md");
    let order = listed(&page);
    let place = |name: &str| order.iter().position(|listed| listed == name);
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(root.join("src")).expect("sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        if name == "lib" {
            continue;
        }
        let own = place(&name).unwrap_or_else(|| panic!("{name} is not listed"));
        for other in needed(&code(&fs::read_to_string(&path).expect("source"))) {
            assert!(
                place(&other).is_some_and(|other| other <= own),
                "{name} needs {other}, which is not listed before it"
            );
        }
        files.insert(name.into_owned());
    }
    assert_eq!(files, BTreeSet::from_iter(order));
}
