use std::sync::mpsc::{Receiver as Told, Sender as Tell, channel};

use tokio::runtime::Runtime;

use super::*;

/// Answers by as many parts as the first byte of the question says, then by what the second one says.
struct Counts {
    /// Told of each part that was taken, and dropped with the future.
    taken: Tell<usize>,
}

const ENDS: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

impl Answers for Counts {
    fn answer(&self, question: Bytes, parts: Parts) -> BoxFuture<'static, Result<(), String>> {
        let taken = self.taken.clone();
        Box::pin(async move {
            for number in 0..usize::from(question[0]) {
                parts.send(Bytes::from(vec![7; number])).await.map_err(|gone| gone.to_string())?;
                taken.send(number).expect("the test waits");
            }
            match question[1] {
                ENDS => Ok(()),
                FAILS => Err("no".to_owned()),
                _ => panic!("as it was asked"),
            }
        })
    }
}

fn ask(runtime: &Runtime, parts: u8, end: u8) -> (Answer, Told<usize>) {
    let (taken, told) = channel();
    let counts: Arc<dyn Answers> = Arc::new(Counts { taken });
    (Answer::of(runtime.handle(), &counts, Bytes::from(vec![parts, end]), ()), told)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// How many parts come, and how the answer ends.
async fn all(answer: &mut Answer) -> (usize, Result<Option<Bytes>, AskError>) {
    let mut parts = 0;
    loop {
        match answer.next().await {
            Ok(Some(part)) => assert_eq!(part.len(), parts),
            ended => return (parts, ended),
        }
        parts += 1;
    }
}

#[test]
fn an_answer_ends_by_saying_so_and_stays_ended() {
    let runtime = runtime();
    let ends = |parts, end| {
        let (mut answer, _told) = ask(&runtime, parts, end);
        let ended = runtime.block_on(all(&mut answer));
        assert_eq!(runtime.block_on(answer.next()), ended.1, "it stays so");
        ended
    };
    assert_eq!(ends(0, ENDS), (0, Ok(None)));
    assert_eq!(ends(100, ENDS), (100, Ok(None)));
    assert_eq!(ends(0, FAILS), (0, Err(AskError::Refused("no".into()))));
    assert_eq!(ends(3, FAILS), (3, Err(AskError::BrokenOff("no".into()))));
    assert!(matches!(ends(3, PANICS), (3, Err(AskError::BrokenOff(_)))), "silence is no end");
    let mut failed = Answer::failed(AskError::TimedOut);
    assert_eq!(runtime.block_on(failed.next()), Err(AskError::TimedOut));
}

#[test]
fn an_answer_goes_no_faster_than_its_asker_and_ends_with_it() {
    let runtime = runtime();
    let (mut answer, told) = ask(&runtime, 200, ENDS);
    assert!(runtime.block_on(answer.next()).expect("a part").is_some());
    // One part was taken, one waits.
    assert_eq!([told.recv(), told.recv()], [Ok(0), Ok(1)]);
    drop(answer);
    // The future has gone, and what it held.
    assert!(told.recv().is_err());
}
