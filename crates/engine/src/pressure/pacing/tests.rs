//! A simulated disk, clients in tight loops, and the pacer between them: a millisecond at a time.

use super::*;

const LIMIT: u64 = 80_000_000;
const THRESHOLD: u64 = LIMIT / 2;

/// A client with one connection that keeps some mutations of one size under way.
struct Client {
    bytes: u64,
    /// Mutations that wait: ticket, since.
    waiting: Vec<(u64, u64)>,
    width: usize,
    next_ticket: u64,
    executed_bytes: u64,
    refused: u64,
    longest_wait: u64,
}

struct World {
    pacer: Pacer,
    now: u64,
    dirty: u64,
    drained: u64,
    /// Taken by the disk and not told yet: batches end in jerks.
    in_batch: f64,
    disk_rate: u64,
    most_dirty: u64,
    clients: Vec<Client>,
}

impl World {
    fn new(disk_rate: u64, clients: &[(u64, usize)]) -> Self {
        let client = |&(bytes, width)| Client {
            bytes,
            waiting: Vec::new(),
            width,
            next_ticket: 0,
            executed_bytes: 0,
            refused: 0,
            longest_wait: 0,
        };
        Self {
            pacer: Pacer::default(),
            now: 0,
            dirty: 0,
            drained: 0,
            in_batch: 0.0,
            disk_rate,
            most_dirty: 0,
            clients: clients.iter().map(client).collect(),
        }
    }

    fn waiter(client: usize, ticket: u64) -> Waiter {
        Waiter { worker: (client % 2) as u32, connection: client as u64, ticket }
    }

    fn execute(&mut self, client: usize) {
        let bytes = self.clients[client].bytes;
        self.clients[client].executed_bytes += bytes;
        self.dirty += bytes;
        self.most_dirty = self.most_dirty.max(self.dirty);
    }

    /// One millisecond: the disk, the pacer, what it lets go, who gives up, and new mutations.
    fn step(&mut self, writes: bool) {
        self.now += 1;
        if self.dirty > 0 {
            self.in_batch += self.disk_rate as f64 / 1e3;
        }
        if self.now.is_multiple_of(200) {
            let bytes = (self.in_batch as u64).min(self.dirty);
            self.in_batch = 0.0;
            self.dirty -= bytes;
            self.drained += bytes;
        }
        if self.now.is_multiple_of(5) {
            let pressure = (self.dirty as f64 - THRESHOLD as f64) / (LIMIT - THRESHOLD) as f64;
            let room = LIMIT.saturating_sub(self.dirty);
            let load = Load {
                drained: self.drained,
                backlog: self.dirty,
                pressure,
                room,
                space: f64::NEG_INFINITY,
                reclaimed: 0,
            };
            for waiter in self.pacer.observe(self.now, &load) {
                let client = waiter.connection as usize;
                let at = self.clients[client].waiting.iter().position(|entry| entry.0 == waiter.ticket);
                // Woken after it gave up: not possible, since it is taken out then.
                let (_, since) = self.clients[client].waiting.remove(at.unwrap());
                assert!(self.pacer.redeem(waiter) && !self.pacer.redeem(waiter));
                let waited = self.now - since;
                self.clients[client].longest_wait = self.clients[client].longest_wait.max(waited);
                self.execute(client);
            }
        }
        for index in 0..self.clients.len() {
            self.give_up(index);
            // At most so many answers per millisecond.
            for _ in 0..4 {
                if !writes || self.clients[index].waiting.len() >= self.clients[index].width {
                    break;
                }
                let client = &mut self.clients[index];
                let (ticket, bytes) = (client.next_ticket, client.bytes);
                client.next_ticket += 1;
                match self.pacer.ask(self.now, Self::waiter(index, ticket), bytes) {
                    Answer::Go => self.execute(index),
                    Answer::Wait => self.clients[index].waiting.push((ticket, self.now)),
                }
            }
        }
    }

    fn give_up(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let overdue = |entry: &mut (u64, u64)| self.now - entry.1 >= WAIT_MILLIS_MAX;
        let gone: Vec<_> = client.waiting.extract_if(.., overdue).collect();
        for (ticket, _) in gone {
            client.refused += 1;
            client.longest_wait = client.longest_wait.max(WAIT_MILLIS_MAX);
            assert!(self.pacer.withdraw(Self::waiter(index, ticket)));
        }
    }

    fn run(&mut self, millis: u64, writes: bool) {
        (0..millis).for_each(|_| self.step(writes));
    }

    fn executed(&self) -> u64 {
        self.clients.iter().map(|client| client.executed_bytes).sum()
    }
}

#[test]
fn below_the_threshold_nobody_waits() {
    let mut world = World::new(200_000_000, &[(2_500, 8), (2_500, 8)]);
    world.run(20_000, true);
    assert!(!world.pacer.is_paced());
    assert!(world.clients.iter().all(|client| client.longest_wait == 0 && client.refused == 0));
}

#[test]
fn intake_becomes_what_drains_and_the_limit_is_not_reached() {
    for disk_rate in [1_000_000, 10_000_000, 50_000_000] {
        let clients: Vec<_> = (0..16).map(|_| (10_000, 8)).collect();
        let mut world = World::new(disk_rate, &clients);
        world.run(60_000, true);
        assert!(world.pacer.is_paced());
        let (before, drained) = (world.executed(), world.drained);
        world.run(30_000, true);
        let (taken_in, drained) = (world.executed() - before, world.drained - drained);
        let ratio = taken_in as f64 / drained as f64;
        assert!((0.9..1.1).contains(&ratio), "{disk_rate}: {taken_in} against {drained}");
        assert!(drained as f64 > disk_rate as f64 * 30.0 * 0.95, "the disk is kept busy");
        assert!(world.most_dirty < LIMIT, "{disk_rate}: {}", world.most_dirty);
        let longest = world.clients.iter().map(|client| client.longest_wait).max();
        assert!(longest <= Some(WAIT_MILLIS_MAX), "{longest:?}");
        // 128 mutations of 10 kB wait at most: on a disk that takes them in less than a second none is refused.
        if disk_rate >= 10_000_000 {
            assert_eq!(world.clients.iter().map(|client| client.refused).sum::<u64>(), 0);
        }
    }
}

#[test]
fn no_connection_starves() {
    // Some keep a hundred mutations under way, one keeps one; some are large.
    let mut world = World::new(10_000_000, &[(2_500, 100), (2_500, 100), (2_500, 1), (100_000, 10)]);
    world.run(30_000, true);
    let before: Vec<_> = world.clients.iter().map(|client| client.executed_bytes).collect();
    world.clients[2].longest_wait = 0;
    world.run(30_000, true);
    let got: Vec<_> = world.clients.iter().zip(before).map(|(client, b)| client.executed_bytes - b).collect();
    let fair = got.iter().sum::<u64>() / 4;
    // The first two and the large one always have something waiting.
    for index in [0, 1, 3] {
        assert!(got[index] > fair * 8 / 10, "{got:?}");
    }
    // The modest one never waits longer than a round of the others.
    assert_eq!(world.clients[2].refused, 0);
    assert!(world.clients[2].longest_wait < 100, "{}", world.clients[2].longest_wait);
}

#[test]
fn a_disk_that_stalls_lets_nobody_wait_for_ever_and_nothing_beyond_the_limit_in() {
    let mut world = World::new(10_000_000, &[(2_500, 100), (2_500, 100)]);
    world.run(30_000, true);
    world.disk_rate = 0;
    world.run(30_000, true);
    assert!(world.most_dirty < LIMIT + 1_000_000, "{}", world.most_dirty);
    for client in &world.clients {
        assert!(client.refused > 1_000 && client.longest_wait <= WAIT_MILLIS_MAX);
    }
    world.disk_rate = 10_000_000;
    let before = world.executed();
    world.run(20_000, true);
    assert!(world.executed() - before > 100_000_000, "it goes on as before: {}", world.executed() - before);
}

#[test]
fn idle_drains_and_ends_pacing() {
    let mut world = World::new(5_000_000, &[(2_500, 100)]);
    world.run(40_000, true);
    assert!(world.pacer.is_paced());
    world.run(20_000, false);
    assert!(!world.pacer.is_paced() && world.dirty == 0);
    assert_eq!((world.pacer.waiting(), world.pacer.waiting_bytes()), (0, 0));
}

#[test]
fn a_waiter_that_is_gone_is_forgotten() {
    let mut pacer = Pacer::default();
    let load = |pressure| Load {
        drained: 0,
        backlog: 100,
        pressure,
        room: 1_000,
        space: f64::NEG_INFINITY,
        reclaimed: 0,
    };
    pacer.observe(0, &load(1.0));
    let waiter = |ticket| Waiter { worker: 0, connection: 1, ticket };
    assert_eq!(pacer.ask(1, waiter(1), 100), Answer::Wait);
    assert_eq!(pacer.ask(5_000, waiter(2), 100), Answer::Wait);
    assert!(pacer.observe(5_001, &load(1.0)).is_empty());
    assert_eq!((pacer.waiting(), pacer.waiting_bytes()), (1, 100));
    assert_eq!(pacer.observe(5_002, &load(-1.0)), [waiter(2)]);
    pacer.observe(10_000, &load(-1.0));
    assert!(!pacer.redeem(waiter(2)), "nobody took it up");
}
