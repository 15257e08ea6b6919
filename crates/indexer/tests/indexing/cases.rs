//! What may happen to an index.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use base::{Datatype, VbId};
use settee_indexer::{Lane, Places, WaitError};

use crate::following;
use crate::world::{DIR, LONG, MANY, NUMBERS, PLAIN, WHOLE, World, document};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("an_index_is_a_map_over_the_bucket", an_index_is_a_map_over_the_bucket),
    ("an_index_survives_crashes_of_the_node", an_index_survives_crashes_of_the_node),
    ("an_index_that_is_built_survives_crashes", an_index_that_is_built_survives_crashes),
    ("a_vbucket_goes_and_comes_back", a_vbucket_goes_and_comes_back),
    ("another_definition_has_another_index", another_definition_has_another_index),
    ("a_loop_costs_its_document_in_its_view", a_loop_costs_its_document_in_its_view),
    (
        "a_loop_is_among_its_like_though_no_other_index_is_there",
        a_loop_is_among_its_like_though_no_other_index_is_there,
    ),
    ("an_index_waits_for_room_on_its_disk", an_index_waits_for_room_on_its_disk),
    ("a_publication_waits_for_room_on_the_disk", a_publication_waits_for_room_on_the_disk),
    ("an_index_that_is_built_gives_way_to_clients", an_index_that_is_built_gives_way_to_clients),
    ("a_damaged_index_is_built_anew", a_damaged_index_is_built_anew),
    ("a_development_index_is_fed_on_demand", a_development_index_is_fed_on_demand),
    (
        "rows_beyond_memory_are_made_of_fewer_documents_at_once",
        rows_beyond_memory_are_made_of_fewer_documents_at_once,
    ),
    ("a_query_waits_while_others_write", a_query_waits_while_others_write),
    (
        "a_query_is_not_held_up_by_an_index_that_waits_for_the_disk",
        a_query_is_not_held_up_by_an_index_that_waits_for_the_disk,
    ),
    ("buckets_take_turns_where_there_is_one_process", buckets_take_turns_where_there_is_one_process),
    ("what_needs_no_function_needs_no_process", what_needs_no_function_needs_no_process),
    ("functions_of_plain_shapes_need_no_process", functions_of_plain_shapes_need_no_process),
    ("functions_that_ignore_documents_need_no_values", functions_that_ignore_documents_need_no_values),
    ("a_stop_waits_for_no_program", a_stop_waits_for_no_program),
    ("programs_that_take_long_are_left_to_a_process", programs_that_take_long_are_left_to_a_process),
    ("an_index_is_compacted_while_it_is_fed", an_index_is_compacted_while_it_is_fed),
    ("a_copy_is_indexed_before_it_takes_over", following::a_copy_is_indexed_before_it_takes_over),
    ("a_copy_lacks_its_index_until_that_is_close", following::a_copy_lacks_its_index_until_that_is_close),
    ("a_copy_may_take_over_at_any_time", following::a_copy_may_take_over_at_any_time),
    (
        "a_copy_is_indexed_once_however_often_a_lane_is_called",
        following::a_copy_is_indexed_once_however_often_a_lane_is_called,
    ),
];

fn an_index_is_a_map_over_the_bucket() {
    let mut world = World::new(&[("a", NUMBERS), ("b", MANY)]);
    world.change(500);
    world.start();
    world.check(NUMBERS);
    for _ in 0..4 {
        world.change(200);
        world.check(MANY);
        world.check(NUMBERS);
    }
    let status = world.status_of(MANY).unwrap();
    assert_eq!((status.left, status.failure, status.names), (0, None, vec!["b".to_owned()]));
    assert!(status.done > 0 && status.rows.iter().all(|rows| *rows > 0));
    world.poll("the front lane", || (world.status_of(MANY)?.lane == Lane::Front).then_some(()));
    world.change(200);
    world.check(MANY);
    world.check(NUMBERS);
}

/// Its first batch is made to seem long, so the rest behind that has a least length that holds on any machine.
fn an_index_that_is_built_gives_way_to_clients() {
    const WORK: Duration = Duration::from_millis(50);
    let mut world = World::new(&[("a", NUMBERS)]);
    let first = Arc::new(Mutex::new(None));
    let asked = Arc::clone(&first);
    world.gives_way = Arc::new(move || {
        let mut asked = asked.lock().unwrap();
        if asked.is_none() {
            let began = Instant::now();
            while began.elapsed() < WORK {
                thread::yield_now();
            }
            *asked = Some(Instant::now());
        }
        true
    });
    world.change(500);
    world.start();
    world.check(NUMBERS);
    let first = first.lock().unwrap().expect("a batch after which it was asked");
    assert!(first.elapsed() >= 3 * WORK, "the index was whole {:?} later", first.elapsed());
}

fn an_index_survives_crashes_of_the_node() {
    let mut world = World::new(&[("a", NUMBERS), ("b", MANY)]);
    world.start();
    for round in 0..4 {
        world.change(300);
        if round % 2 == 0 {
            world.persist();
            world.check(NUMBERS);
        }
        // What is not on the bucket's disk by now is lost, and may be in an index.
        world.change(50);
        world.crash();
        world.check(NUMBERS);
        world.check(MANY);
    }
    // A clean stop loses nothing: the index is what it was before anything is told of vBuckets.
    world.persist();
    world.check(MANY);
    let before = world.rows(&world.wait_for(MANY).unwrap(), "t");
    world.indexer = None;
    world.start_untold();
    let signature = document(MANY).signature();
    let snapshot = world.poll("the index", || world.indexer().snapshot(&signature));
    assert_eq!(world.rows(&snapshot, "t"), before);
}

fn an_index_that_is_built_survives_crashes() {
    let mut world = World::new(&[("b", MANY)]);
    // Each batch is durable, so that a crash finds an index in the middle of a snapshot.
    world.pacing.commit_after = Duration::ZERO;
    world.change(2000);
    world.persist();
    world.start();
    for _ in 0..3 {
        let status = world.poll("a part", || world.status_of(MANY).filter(|status| status.done > 0));
        println!("  crashes with {} changes left of {}", status.left, status.left + status.done);
        world.crash();
        world.change(20);
        world.persist();
    }
    world.check(MANY);
}

fn a_vbucket_goes_and_comes_back() {
    let mut world = World::new(&[("b", MANY)]);
    world.start();
    world.change(400);
    world.check(MANY);
    for vb in [VbId(3), VbId(7)] {
        world.leave(vb);
        let signature = document(MANY).signature();
        world.poll("an index without the vBucket", || {
            let snapshot = world.indexer().snapshot(&signature)?;
            snapshot.state(vb).is_none().then_some(())
        });
        world.check(MANY);
    }
    world.change(100);
    world.come(VbId(3));
    world.check(MANY);
    // It goes and comes so soon that its feed does not end, and nobody tells of it.
    world.take_turns(VbId(5));
    world.change(100);
    world.check(MANY);
    // It comes back with nothing, and is told of before the index has forgotten what it had.
    world.empty(VbId(9));
    world.check(MANY);
    world.change(200);
    world.come(VbId(7));
    world.check(MANY);
}

fn another_definition_has_another_index() {
    let mut world = World::new(&[("a", NUMBERS)]);
    world.start();
    world.change(200);
    world.check(NUMBERS);
    let folder = |text: &str| document(text).signature().to_string();
    world.define(&[("a", NUMBERS), ("copy", NUMBERS)]);
    world.check(NUMBERS);
    let names = world.status_of(NUMBERS).unwrap().names;
    assert_eq!(names, ["a", "copy"], "they share an index");
    world.poll("one folder", || (world.folders() == [folder(NUMBERS)]).then_some(()));
    world.define(&[("a", MANY)]);
    world.check(MANY);
    world.poll("the removal of the earlier index", || (world.folders() == [folder(MANY)]).then_some(()));
    assert_eq!(world.wait_for(NUMBERS).map(drop), Err(WaitError::Unknown));
    let is_gone = || world.indexer().snapshot(&document(NUMBERS).signature()).is_none();
    world.poll("no snapshot of the earlier index", || is_gone().then_some(()));
    // One that is removed while the node is down.
    world.indexer = None;
    world.define(&[("a", NUMBERS)]);
    world.start();
    world.check(NUMBERS);
    world.poll("the removal of a forgotten index", || (world.folders() == [folder(NUMBERS)]).then_some(()));
}

/// Loops over one document for ever.
const LOOPS: &str = r#"{"views":{"n":{"map":"function (doc, meta) { if (meta.id == 'loop') for (;;) {} emit(doc.n, null); }"}}}"#;

fn a_loop_costs_its_document_in_its_view() {
    let mut world = World::new(&[("a", LOOPS), ("b", NUMBERS)]);
    world.time = Duration::from_secs(2);
    world.change(100);
    world.store("loop", b"{\"n\":1}", Datatype::JSON);
    world.start();
    let snapshot = world.wait_for(LOOPS).unwrap();
    let status = world.status_of(LOOPS).unwrap();
    let told: Vec<_> =
        status.mistakes[0].last.iter().map(|one| (one.docid.as_str(), one.text.as_str())).collect();
    assert!(told.contains(&("loop", "timeout")), "{told:?}");
    let mut truth = world.truth();
    truth.remove("loop");
    let ids: Vec<String> = world.rows(&snapshot, "n").into_iter().map(|row| row.0).collect();
    assert_eq!(ids, truth.into_keys().collect::<Vec<_>>(), "all others are there");
    world.check(NUMBERS);
    assert_eq!(world.status_of(NUMBERS).unwrap().mistakes[0].count, 0);
}

fn a_loop_is_among_its_like_though_no_other_index_is_there() {
    let mut world = World::new(&[("a", LOOPS)]);
    world.time = Duration::from_secs(1);
    world.store("loop", b"{\"n\":1}", Datatype::JSON);
    world.start();
    world.poll("the lane of slow ones", || (world.status_of(LOOPS)?.lane == Lane::Slow).then_some(()));
    world.change(100);
    world.wait_for(LOOPS).unwrap();
}

fn an_index_waits_for_room_on_its_disk() {
    let mut world = World::new(&[("b", MANY)]);
    world.start();
    world.change(100);
    world.check(MANY);
    world.index_disk.set_capacity(Some(world.index_disk.used_bytes()));
    world.change(500);
    let failure = world.poll("a full disk", || world.status_of(MANY)?.failure);
    assert!(failure.contains("disk refused"), "{failure}");
    let late = world.indexer().wait_for(&document(MANY).signature(), &world.wants(), Instant::now());
    assert!(matches!(late.map(drop), Ok(()) | Err(WaitError::Late(_))));
    world.index_disk.set_capacity(None);
    world.check(MANY);
    world.poll("a commit", || world.status_of(MANY)?.failure.is_none().then_some(()));
}

fn a_publication_waits_for_room_on_the_disk() {
    let mut world = World::new(&[("b", WHOLE)]);
    // Nothing is published before all has come, unless somebody waits for it.
    (world.pacing.show_after, world.pacing.commit_after) = (LONG, LONG);
    for number in 0..60 {
        // Nothing that would get smaller by being packed.
        let text: String = std::iter::repeat_with(|| world.rng.alphanumeric()).take(100 << 10).collect();
        let body = format!("{{\"n\":{number},\"t\":\"{text}\"}}");
        world.store(&format!("large{number}"), body.as_bytes(), Datatype::JSON);
    }
    // There is room for the files into which rows are sorted, and not for those beside an index.
    let free = 8 << 20;
    world.index_disk.set_capacity(Some(world.index_disk.used_bytes() + free));
    world.start();
    world.poll("a disk without room", || world.indexer().status().is_without_room.then_some(()));
    let late = world.indexer().wait_for(&document(WHOLE).signature(), &world.wants(), Instant::now());
    assert!(matches!(late.map(drop), Err(WaitError::Late(_))));
    let status = world.status_of(WHOLE).unwrap();
    assert_eq!((status.failure, status.begun > 0), (None, true), "it waits, and keeps what it has");
    let used = world.index_disk.used_bytes();
    assert!(used < free, "{used} bytes");
    world.index_disk.set_capacity(None);
    let snapshot = world.wait_for(WHOLE).unwrap();
    assert_eq!(world.rows(&snapshot, "whole").len(), 60);
    world.poll("room", || (!world.indexer().status().is_without_room).then_some(()));
}

fn a_damaged_index_is_built_anew() {
    let mut world = World::new(&[("b", MANY)]);
    world.start();
    world.change(300);
    world.check(MANY);
    // The stop makes it durable.
    world.indexer = None;
    let head = Path::new(DIR).join(document(MANY).signature().to_string()).join("head");
    assert!(world.index_disk.flip_bit(&head, 20, 3));
    world.start();
    world.check(MANY);
    // A query finds damage in an index that is open.
    world.indexer = None;
    world.start();
    world.check(MANY);
    let signature = document(MANY).signature();
    let present = |world: &World| world.indexer().snapshot(&signature).map(|snapshot| snapshot.opening());
    let former = present(&world).unwrap();
    let begun = |world: &World| world.status_of(MANY).unwrap().begun;
    let before = begun(&world);
    world.indexer().report_damage(&signature, former);
    world.poll("another index", || (present(&world)? != former).then_some(()));
    // A query that still reads the former index misses files of it.
    let anew = present(&world);
    world.indexer().report_damage(&signature, former);
    world.check(MANY);
    assert!(begun(&world) > before, "it was built from the beginning");
    world.change(200);
    world.check(MANY);
    assert_eq!(present(&world), anew, "the damage of the former index is none of the new one");
}

fn a_development_index_is_fed_on_demand() {
    let mut world = World::new(&[("dev_a", NUMBERS), ("b", MANY)]);
    world.change(300);
    world.start();
    world.check(MANY);
    let signature = document(NUMBERS).signature();
    let done = |world: &World| {
        let snapshot = world.indexer().snapshot(&signature);
        snapshot.map_or(0, |snapshot| world.rows(&snapshot, "n").len())
    };
    assert_eq!(done(&world), 0, "nobody asked");
    let one = world.wants().into_iter().filter(|(vb, _)| *vb == VbId(4)).collect();
    let snapshot = world.indexer().wait_for(&signature, &one, Instant::now() + LONG).unwrap();
    assert_eq!(snapshot.vbuckets().iter().collect::<Vec<_>>(), [VbId(4)]);
    world.check(NUMBERS);
    let before = done(&world);
    world.store("another", b"{\"n\":1,\"t\":\"a\"}", Datatype::JSON);
    world.check(MANY);
    assert_eq!(done(&world), before, "nobody asked for more");
    // Published, it is kept up to date.
    world.define(&[("a", NUMBERS), ("b", MANY)]);
    world.poll("the published index", || (done(&world) == before + 1).then_some(()));
    world.check(NUMBERS);
}

fn rows_beyond_memory_are_made_of_fewer_documents_at_once() {
    let mut world = World::new(&[("a", NUMBERS), ("b", MANY)]);
    // The rows of a few documents.
    world.rows_bytes = 1 << 10;
    world.change(400);
    world.persist();
    world.start();
    world.check(MANY);
    world.check(NUMBERS);
    world.change(100);
    world.crash();
    world.check(MANY);
    world.check(NUMBERS);
}

fn a_query_waits_while_others_write() {
    let mut world = World::new(&[("a", NUMBERS)]);
    world.start();
    world.change(300);
    world.check(NUMBERS);
    let stops = AtomicBool::new(false);
    let pause = world.alarm();
    let (world, stops) = (&world, &stops);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 0;
            while !stops.load(SeqCst) && number < 50_000 {
                world.store(&format!("other{}", number % 100), b"{\"n\":5}", Datatype::JSON);
                number += 1;
                // Slowly, so that the index can follow on any machine.
                pause.wait(Duration::from_millis(5));
            }
        });
        for round in 0..15 {
            let (id, n) = (format!("mine{round}"), 10_000 + round);
            world.store(&id, format!("{{\"n\":{n}}}").as_bytes(), Datatype::JSON);
            let snapshot = world.wait_for(NUMBERS).unwrap();
            let rows = world.rows(&snapshot, "n");
            assert!(rows.contains(&(id, n.to_string(), "null".to_owned())), "its own write is seen");
        }
        stops.store(true, SeqCst);
    });
    world.check(NUMBERS);
}

/// Both indexes are in the hands of one thread.
fn a_query_is_not_held_up_by_an_index_that_waits_for_the_disk() {
    let mut world = World::new(&[("a", MANY), ("b", NUMBERS)]);
    world.pacing.commit_held = LONG;
    world.start();
    world.change(100);
    world.check(MANY);
    world.check(NUMBERS);
    world.persist();
    world.hold_disk(true);
    world.change(20);
    world.check(MANY);
    world.check(NUMBERS);
    // Commits of both are due by then, and wait.
    world.alarm().wait(10 * world.pacing.commit_after);
    for round in 0..3 {
        world.store(&format!("mine{round}"), b"{\"n\":7,\"t\":\"a\"}", Datatype::JSON);
        let (signature, until) = (document(MANY).signature(), Instant::now() + LONG / 10);
        let found = world.indexer().wait_for(&signature, &world.wants(), until).map(drop);
        assert!(found.is_ok(), "{round}: {found:?}");
    }
    world.hold_disk(false);
    world.check(MANY);
    world.check(NUMBERS);
}

/// Two buckets share one place, and each has two lanes with something to do.
fn buckets_take_turns_where_there_is_one_process() {
    let mut worlds = [World::new(&[("a", NUMBERS)]), World::new(&[("a", NUMBERS)])];
    let places = Places::new(1);
    for world in &mut worlds {
        world.places = places.clone();
        world.change(300);
        world.start();
    }
    worlds.iter().for_each(|world| world.check(NUMBERS));
    worlds.iter_mut().for_each(|world| world.define(&[("a", NUMBERS), ("b", MANY)]));
    for _ in 0..3 {
        for world in &mut worlds {
            world.change(100);
            assert!(places.held() <= 1, "there is one place");
        }
        for world in &worlds {
            world.check(MANY);
            world.check(NUMBERS);
        }
    }
    // A stop waits for nobody's place.
    drop(worlds);
    assert_eq!(places.held(), 0);
}

/// A node's places may all be taken by functions of other buckets for as long as these like.
fn what_needs_no_function_needs_no_process() {
    let mut world = World::new(&[("a", NUMBERS)]);
    world.change(300);
    world.persist();
    world.start();
    world.check(NUMBERS);
    // A clean stop makes everything durable, so nothing is left to be mapped.
    world.indexer = None;
    world.places = Places::new(1);
    world.start();
    world.wait_for(NUMBERS).unwrap();
    assert_eq!(world.places.held(), 0, "nothing was mapped");
    let (signature, vb) = (document(NUMBERS).signature(), VbId(3));
    let had = |world: &World| world.indexer().snapshot(&signature)?.state(vb).cloned();
    assert!(had(&world).is_some());
    world.leave(vb);
    world.poll("the rows of a vBucket that left", || had(&world).is_none().then_some(()));
    assert_eq!(world.places.held(), 0, "showing that takes no process");
}

fn functions_of_plain_shapes_need_no_process() {
    let mut world = World::new(&[("a", PLAIN)]);
    world.change(300);
    world.start();
    world.wait_for(PLAIN).unwrap();
    assert!(world.status_of(PLAIN).unwrap().rows.iter().all(|rows| *rows > 50));
    assert_eq!(world.places.held(), 0);
    world.define(&[("a", PLAIN), ("b", MANY)]);
    world.check(MANY);
    assert_eq!(world.places.held(), 1);
}

/// A row for each document, whatever is in it.
const IDS: &str = r#"{"views":{"i":{"map":"function (doc, meta) { emit(meta.id, null); }"}}}"#;
/// The same by a function that is given documents.
const IDS_OF_DOCUMENTS: &str =
    r#"{"views":{"i":{"map":"function (doc, meta) { if (doc) emit(meta.id, null); }"}}}"#;

fn functions_that_ignore_documents_need_no_values() {
    let mut world = World::new(&[("a", IDS)]);
    world.change(500);
    world.store("damaged", br#"{"text":"a value of which a bit is flipped"}"#, Datatype::JSON);
    world.persist();
    world.start();
    // From memory.
    let first = world.wait_for(IDS).unwrap();
    let rows = world.rows(&first, "i");
    assert!(rows.len() > 100);
    world.define(&[("a", IDS), ("b", IDS_OF_DOCUMENTS)]);
    let by_document = world.wait_for(IDS_OF_DOCUMENTS).unwrap();
    assert_eq!(world.rows(&by_document, "i"), rows);
    // From disk, of which a value is damaged that nothing reads.
    drop((first, by_document));
    world.crash();
    world.define(&[]);
    world.poll("no index", || world.folders().is_empty().then_some(()));
    assert_eq!(world.damage(b"a value of which a bit is flipped"), 1);
    world.define(&[("a", IDS)]);
    let from_disk = world.wait_for(IDS).unwrap();
    assert_eq!(world.rows(&from_disk, "i"), rows);
}

/// A plain shape that takes most of the steps that a program may take, for each document.
const LONG_PROGRAM: &str = r#"{"views":{"n":{"map":"function (doc, meta) { for (var i = 0; i < 5000; i++) { if (i == -1) emit(i, null); } emit(meta.id, null); }"}}}"#;

/// Seconds that the threads of this process were on a processor.
fn on_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn a_stop_waits_for_no_program() {
    let mut world = World::new(&[("a", LONG_PROGRAM)]);
    world.batch_documents = 100_000;
    for number in 0..20_000 {
        world.store(&format!("d{number}"), b"{}", Datatype::JSON);
    }
    let begin = on_processor();
    world.start();
    // All documents are one batch, or what the feed had first and the others. These take many times as long.
    world.poll("a batch is being mapped", || (on_processor() - begin > 1.0).then_some(()));
    let indexed = world.status_of(LONG_PROGRAM).map_or(0, |status| status.rows.iter().sum());
    assert!(indexed < 20_000, "the batch is longer than that: {indexed}");
    let begin = on_processor();
    world.indexer = None;
    assert!(on_processor() - begin < 1.0, "a stop took {} s of a processor", on_processor() - begin);
}

fn programs_that_take_long_are_left_to_a_process() {
    let mut world = World::new(&[("a", LONG_PROGRAM)]);
    world.batch_documents = 100_000;
    for number in 0..40_000 {
        world.store(&format!("d{number}"), b"{}", Datatype::JSON);
    }
    world.start();
    world.poll("a process has what is left", || (world.places.held() > 0).then_some(()));
    let mapped = world.status_of(LONG_PROGRAM).map_or(0, |status| status.rows.iter().sum());
    assert!(mapped < 40_000, "not before all of it is mapped");
}

fn an_index_is_compacted_while_it_is_fed() {
    let mut world = World::new(&[("a", NUMBERS), ("b", MANY)]);
    world.start();
    for _ in 0..10 {
        world.change(100);
        world.check(MANY);
    }
    let waste = |world: &World| {
        let status = world.status_of(MANY).unwrap();
        status.disk_bytes - status.live_bytes
    };
    let compacts = |world: &World, name: &str| {
        world.indexer().compactions().iter().any(|course| course.names.contains(&name.to_owned()))
    };
    // Nothing is to be told of names that nobody has.
    world.indexer().compact("other", true);
    assert_eq!(world.indexer().compactions(), Vec::new());
    // One commit of all changes supersedes nothing on the disk, so there have to be several.
    let committed = |world: &World| {
        world.poll("an index that has everything on its disk", || {
            world.status_of(MANY).filter(|status| status.left == 0 && status.live_bytes > 0)
        })
    };
    let mut status = committed(&world);
    for _ in 0..100 {
        if status.disk_bytes > status.live_bytes {
            break;
        }
        world.change(20);
        world.check(MANY);
        world.persist();
        status = committed(&world);
    }
    assert!(status.disk_bytes > status.live_bytes, "{status:?}");
    world.indexer().compact("b", true);
    world.poll("the end of a compaction", || (!compacts(&world, "b")).then_some(()));
    let left = waste(&world);
    assert!(left * 10 < status.disk_bytes, "{left} of {status:?}");
    // What is fed meanwhile is not lost, and the other index was left alone.
    world.indexer().compact("b", true);
    world.change(300);
    world.check(MANY);
    world.check(NUMBERS);
    world.persist();
    world.poll("the end of a compaction", || (!compacts(&world, "b")).then_some(()));
    world.crash();
    world.check(MANY);
    // One that was cancelled is no task any more.
    world.indexer().compact("b", true);
    world.indexer().compact("b", false);
    assert!(!compacts(&world, "b"));
    world.change(100);
    world.check(MANY);
}
