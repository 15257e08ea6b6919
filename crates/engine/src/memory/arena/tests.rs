use std::collections::BTreeMap;
use std::sync::mpsc;

use fastrand::Rng;

use super::*;

/// What a test allocated: where it is, how long, and the byte it is filled with.
struct Block {
    handle: Handle,
    bytes: usize,
    fill: u8,
}

fn alloc(arena: &Arena, random: &mut Rng, purpose: Purpose) -> Option<Block> {
    let bytes = match random.u32(..100) {
        0..60 => random.usize(1..=200),
        60..97 => random.usize(1..=5_000),
        _ => random.usize(1..=if cfg!(miri) { 70_000 } else { 400_000 }),
    };
    let block = Block { handle: arena.alloc(bytes, purpose)?, bytes, fill: random.u8(..) };
    // SAFETY: just allocated with this length.
    unsafe { arena.at(block.handle).write_bytes(block.fill, bytes) };
    Some(block)
}

fn free(arena: &Arena, block: Block) {
    // SAFETY: the block is ours and was filled when allocated.
    unsafe {
        let content = std::slice::from_raw_parts(arena.at(block.handle), block.bytes);
        assert!(content.iter().all(|&byte| byte == block.fill), "a block was overwritten");
        arena.free(block.handle);
    }
}

#[test]
fn blocks_never_overlap_and_everything_is_returned() {
    for seed in 0..if cfg!(miri) { 1 } else { 8 } {
        println!("seed {seed}");
        let arena = Arena::with_reserve(256 << 20).unwrap();
        let mut random = Rng::with_seed(seed);
        let mut blocks: BTreeMap<u32, Block> = BTreeMap::new();
        let steps = if cfg!(miri) { 150 } else { 4_000 };
        for step in 0..steps {
            let purpose = if random.bool() { Purpose::Item } else { Purpose::Table };
            let growing = step / (steps / 8) % 2 == 0;
            if random.u32(..10) < if growing { 7 } else { 3 } {
                let Some(block) = alloc(&arena, &mut random, purpose) else { continue };
                assert!(arena.size_of(block.handle) >= block.bytes);
                let (start, end) = (block.handle.get(), block.handle.get() + block.bytes.div_ceil(8) as u32);
                assert!(blocks.range(start..end).next().is_none(), "overlaps the next block");
                if let Some((_, before)) = blocks.range(..start).next_back() {
                    assert!(before.handle.get() + before.bytes.div_ceil(8) as u32 <= start, "overlaps");
                }
                blocks.insert(start, block);
            } else if let Some(start) = blocks.keys().copied().nth(random.usize(..blocks.len().max(1))) {
                free(&arena, blocks.remove(&start).unwrap());
            }
            assert!(arena.used_bytes() <= arena.committed_bytes());
        }
        let used: usize = blocks.values().map(|block| arena.size_of(block.handle)).sum();
        assert_eq!(arena.used_bytes(), used);
        blocks.into_values().for_each(|block| free(&arena, block));
        while arena.return_empty_slab() > 0 {}
        assert_eq!((arena.used_bytes(), arena.committed_bytes()), (0, 0));
    }
}

#[test]
fn exhaustion_answers_none_and_freeing_heals() {
    let arena = Arena::with_reserve(64 << 20).unwrap();
    let bytes = if cfg!(miri) { 100_000 } else { 1_000_000 };
    let blocks: Vec<Handle> = std::iter::from_fn(|| arena.alloc(bytes, Purpose::Item)).collect();
    assert!(blocks.len() > 30, "only {} blocks", blocks.len());
    assert_eq!(arena.alloc(bytes, Purpose::Item), None);
    // SAFETY: allocated above, used by nobody.
    unsafe { arena.free(blocks[7]) };
    assert_eq!(arena.alloc(bytes, Purpose::Item), Some(blocks[7]));
}

#[test]
fn memory_of_a_returned_slab_reads_as_zero() {
    let arena = Arena::with_reserve(64 << 20).unwrap();
    for bytes in [100, 3_000, 70_000] {
        let blocks: Vec<Handle> = (0..200).map_while(|_| arena.alloc(bytes, Purpose::Item)).collect();
        for &block in &blocks {
            // SAFETY: allocated above with this length, used by nobody else.
            unsafe {
                arena.at(block).write_bytes(0xff, bytes);
                arena.free(block);
            }
        }
        while arena.return_empty_slab() > 0 {}
        let block = arena.alloc(30_000, Purpose::Table).unwrap();
        // SAFETY: just allocated; the range is initialised memory from the start.
        let content = unsafe { std::slice::from_raw_parts(arena.at(block), 30_000) };
        assert!(content.iter().all(|&byte| byte == 0));
        // SAFETY: as above.
        unsafe { arena.free(block) };
    }
}

#[test]
fn blocks_are_freed_by_other_threads_while_more_are_taken() {
    let arena = Arena::with_reserve(512 << 20).unwrap();
    let (threads, steps) = if cfg!(miri) { (2, 100) } else { (4, 4_000) };
    std::thread::scope(|scope| {
        // A ring: each thread frees what its neighbour allocated.
        let (mut senders, receivers): (Vec<_>, Vec<_>) =
            (0..threads).map(|_| mpsc::sync_channel(500)).unzip();
        senders.rotate_left(1);
        for (seed, (sender, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            let arena = &arena;
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed as u64);
                for _ in 0..steps {
                    if let Some(block) = alloc(arena, &mut random, Purpose::Item)
                        && let Err(mpsc::TrySendError::Full(block) | mpsc::TrySendError::Disconnected(block)) =
                            sender.try_send(block)
                    {
                        free(arena, block);
                    }
                    if random.bool() {
                        receiver.try_iter().take(3).for_each(|block| free(arena, block));
                    }
                }
                drop(sender);
                receiver.iter().for_each(|block| free(arena, block));
            });
        }
    });
    while arena.return_empty_slab() > 0 {}
    assert_eq!((arena.used_bytes(), arena.committed_bytes()), (0, 0));
}
