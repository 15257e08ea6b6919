//! An old image of a node's disk comes back, made after a clean stop. Nothing tells that it is old, so these tests show what is lost
//! (`docs/promises.md`), not that nothing is.

use base::bucket::BucketKind;

use super::{
    copy::OnDisk,
    events::Event,
    world::{Bounds, World},
};

/// Two copies with one write each that both have synced; and what node `at` had on disk before that write.
fn with_image_of(at: usize) -> (World, OnDisk) {
    let kind = BucketKind::Couchbase;
    let mut world = World::new(Bounds { copies: 2, spares: 0, kind, writes: 2, faults: 9, changes: 0 });
    write(&mut world);
    world = world.after(Event::Stop(at));
    let image = world.nodes[at].held.disk.clone().unwrap();
    world.feed(1, true);
    write(&mut world);
    assert_eq!(world.durable, 0b11, "both are acknowledged as durable");
    (world, image)
}

fn write(world: &mut World) {
    for event in [Event::Write { at: 0, told: 0b10 }, Event::Sync(0), Event::Sync(1)] {
        *world = world.after(event);
    }
}

fn served(world: &World) -> &[u8] {
    &world.nodes[world.serving().unwrap()].held.log
}

#[test]
fn an_old_image_of_the_active_undoes_what_the_other_copy_has() {
    let (mut world, image) = with_image_of(0);
    world.restore(0, &image);
    world.lead();
    world.feed(1, true);
    assert_eq!(served(&world), [0]);
    assert_eq!(world.nodes[1].held.log, [0], "it was rolled back");
}

#[test]
fn an_old_image_of_the_other_copy_catches_up() {
    let (mut world, image) = with_image_of(1);
    world.restore(1, &image);
    world.feed(1, true);
    world = world.after(Event::FailOver(0));
    world.lead();
    assert_eq!(served(&world), [0, 1]);
}

#[test]
fn an_old_image_that_is_elected_before_it_has_caught_up_lacks_what_only_the_active_had() {
    let (mut world, image) = with_image_of(1);
    world.restore(1, &image);
    world = world.after(Event::FailOver(0));
    world.lead();
    assert_eq!(served(&world), [0]);
}
