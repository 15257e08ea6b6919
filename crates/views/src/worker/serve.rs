//! The process that runs functions, until its input ends.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    time::{Duration, Instant},
};

use super::wire::{Damaged, FRAME_BYTES_MAX, Frames, Reply, Request};
use crate::{
    design::Compiler,
    js::{Checker, Document, Failure, FailureKind, Functions, Mapped},
};

/// What was mapped is told after this time at the latest, so that the other side sees how far it got.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// It is told as well where it is about so large, so that no frame gets too long.
const TELL_BYTES: usize = 1 << 20;

/// Answers requests until the input ends.
///
/// # Errors
/// The input or output failed, or a request was damaged.
pub fn serve(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut worker = Worker { output, contexts: HashMap::new() };
    worker.say(&Reply::Ready)?;
    let mut frames = Frames::up_to(FRAME_BYTES_MAX);
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Some(frame) = frames.next_frame().map_err(|length| damaged(length.into()))? {
            let request = Request::decode(frame).map_err(damaged)?;
            worker.answer(request)?;
        }
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.push(buffer.get(..count).unwrap_or_default());
    }
}

fn damaged(error: Damaged) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

struct Worker<'o, O> {
    output: &'o mut O,
    contexts: HashMap<u32, Functions>,
}

impl<O: Write> Worker<'_, O> {
    fn say(&mut self, reply: &Reply) -> io::Result<()> {
        let mut frame = Vec::new();
        reply.encode(&mut frame).map_err(damaged)?;
        self.output.write_all(&frame)?;
        self.output.flush()
    }

    fn answer(&mut self, request: Request<'_>) -> io::Result<()> {
        match request {
            Request::Load { context, limits, analysed, sources } => {
                self.contexts.remove(&context);
                let result = match Functions::new(sources, limits, analysed) {
                    Ok(functions) => {
                        self.contexts.insert(context, functions);
                        Ok(())
                    }
                    Err(failure) => Err(failure),
                };
                self.say(&Reply::Loaded { context, result })
            }
            Request::Map { id, context, documents } => self.map(id, context, &documents),
            Request::Reduce { id, context, function, keys, values } => {
                let result = match self.contexts.get_mut(&context) {
                    Some(functions) => functions.reduce(usize::from(function), keys.as_deref(), &values),
                    None => Err(unknown()),
                };
                self.say(&Reply::Reduced { id, result })
            }
            Request::Check { id, source } => {
                let result = Checker::default().check(source);
                self.say(&Reply::Checked { id, result })
            }
            Request::Drop { context } => {
                self.contexts.remove(&context);
                Ok(())
            }
        }
    }

    fn map(&mut self, id: u64, context: u32, documents: &[Document<'_>]) -> io::Result<()> {
        let (mut first, mut bytes, mut told) = (0_u32, 0, Instant::now());
        let mut mapped = Vec::new();
        for document in documents {
            let one = match self.contexts.get_mut(&context) {
                Some(functions) => functions.map(document),
                None => Mapped { rows: Err(unknown()), logs: Vec::new() },
            };
            bytes += size(&one);
            mapped.push(one);
            if bytes >= TELL_BYTES || told.elapsed() >= TELL_AFTER {
                let count = u32::try_from(mapped.len()).unwrap_or(u32::MAX);
                self.say(&Reply::Mapped { id, first, documents: std::mem::take(&mut mapped) })?;
                first = first.saturating_add(count);
                bytes = 0;
                told = Instant::now();
            }
        }
        if mapped.is_empty() {
            return Ok(());
        }
        self.say(&Reply::Mapped { id, first, documents: mapped })
    }
}

fn unknown() -> Failure {
    Failure::new(FailureKind::NotAFunction, "no such functions")
}

/// About how many bytes a document's rows take in a frame.
fn size(mapped: &Mapped) -> usize {
    let views = mapped.rows.as_deref().unwrap_or_default();
    let rows = views.iter().filter_map(|rows| rows.as_ref().ok()).flatten();
    rows.map(|row| row.key.len() + row.value.len() + 8).sum::<usize>() + 64
}
