//! Embeds what `crates/console/web/build` has made. Where nothing was made, the table is empty, and the crate serves a page that says so.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut names: Vec<String> = match fs::read_dir(&dist) {
        Ok(files) => files.flatten().filter_map(|file| file.file_name().into_string().ok()).collect(),
        Err(_) => Vec::new(),
    };
    names.sort();
    let mut table = String::from("&[\n");
    for name in names.iter().filter(|name| !name.ends_with(".gz") && !name.starts_with('.')) {
        let packed = format!("{name}.gz");
        table.push_str(&entry(&dist, name, names.contains(&packed).then_some(&packed))?);
    }
    table.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("files.rs"), table)
}

/// A line of the table: the file's name, its bytes plain and compressed, and a tag that says which bytes they are.
fn entry(dist: &Path, name: &str, packed: Option<&String>) -> io::Result<String> {
    let path = dist.join(name);
    let mut hasher = DefaultHasher::new();
    fs::read(&path)?.hash(&mut hasher);
    let packed = packed.map(|packed| format!("Some(include_bytes!({:?}))", dist.join(packed)));
    Ok(format!(
        "    Entry {{ name: {name:?}, plain: include_bytes!({path:?}), packed: {}, tag: \"\\\"{:016x}\\\"\" }},\n",
        packed.unwrap_or_else(|| "None".into()),
        hasher.finish(),
    ))
}
