//! Measures what it costs to read and to set one field of a JSON document, and to parse the document into a tree. Costs
//! are processor time (median of the rounds) and allocations. Documents are orders, objects inside arrays inside an
//! object, with text that has escapes in it.
//!
//! `cargo run --release -p settee-engine --example subdoc [document bytes]`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use settee_engine::subdoc::{self, Edit, Path};

const ROUNDS: usize = 15;
const ROUND_TIME: Duration = Duration::from_millis(60);

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// About so many bytes, with a field first, one in the middle and one at the end.
fn document(bytes: usize) -> String {
    let mut text = r#"{"first":"value","orders":["#.to_owned();
    let mut number = 0;
    let mut has_middle = false;
    while text.len() < bytes - 40 {
        if number > 0 {
            text.push(',');
        }
        let _ = write!(
            text,
            r#"{{"id":{number},"sku":"A-{:05}","title":"A thing that is called \"thing {number}\"","price":{}.99,"#,
            number * 37 % 99_991,
            number % 500
        );
        let _ = write!(
            text,
            r#""tags":["red","large","fragile"],"size":{{"w":{},"h":12,"unit":"mm"}},"paid":true,"note":null}}"#,
            number % 90
        );
        number += 1;
        if !has_middle && text.len() >= bytes / 2 {
            text += r#"],"middle":{"deep":{"er":42}},"more":["#;
            number = 0;
            has_middle = true;
        }
    }
    text + r#"],"last":[1,2,3]}"#
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nanoseconds and allocations of one call.
fn measure(mut call: impl FnMut()) -> (f64, u64) {
    let before = ALLOCATIONS.get();
    call();
    let allocations = ALLOCATIONS.get() - before;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, mut calls) = (processor_time(), 0_u32);
            while processor_time() - start < ROUND_TIME {
                for _ in 0..16 {
                    call();
                }
                calls += 16;
            }
            (processor_time() - start).as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], allocations)
}

fn report(what: &str, (nanos, allocations): (f64, u64)) {
    println!("| {what} | {:.2} | {allocations} |", nanos / 1000.0);
}

fn main() {
    let bytes = std::env::args().nth(1).and_then(|bytes| bytes.parse().ok()).unwrap_or(20_000);
    let text = document(bytes);
    let json = text.as_bytes();
    println!("document of {} bytes\n\n| operation | us | allocations |\n|---|---|---|", json.len());
    let parse = || serde_json::from_slice::<serde_json::Value>(black_box(json)).expect("valid");
    for (name, path) in [
        ("first field", "first"),
        ("field in the middle", "middle.deep.er"),
        ("element in the middle", "orders[-1].size.unit"),
        ("last field", "last[-1]"),
        ("field that is not there", "nothing"),
    ] {
        let get = || {
            let path = Path::parse(black_box(path.as_bytes())).expect("a path");
            let _ = black_box(subdoc::get(black_box(json), &path));
        };
        report(&format!("get {name}"), measure(get));
    }
    let count = || {
        let path = Path::parse(black_box(b"orders")).expect("a path");
        let _ = black_box(subdoc::count(black_box(json), &path));
    };
    report("count an array that is half the document", measure(count));
    let mut out = Vec::with_capacity(json.len() + 64);
    let upsert = || {
        let path = Path::parse(black_box(b"middle.deep.er")).expect("a path");
        let _ = black_box(subdoc::apply(black_box(json), &path, &Edit::DictUpsert(b"43"), false, &mut out));
    };
    report("set a field in the middle", measure(upsert));
    report("parse into serde_json::Value", measure(|| drop(black_box(parse()))));
    let parse_set = || {
        let mut value = parse();
        value["middle"]["deep"]["er"] = 43.into();
        drop(black_box(value.to_string()));
    };
    report("parse, set, serialise", measure(parse_set));
    report("check that it is JSON", measure(|| _ = black_box(settee_engine::json::is_json(black_box(json)))));
}
