//! Orders that arrive while a run goes on, line by line from standard input or from a file somebody rewrites.

use super::super::Failure;
use load::{Control, conduct};
use std::io::{BufRead, stdin};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Has orders carried out from now on; the thread that does it ends with the process.
pub(super) fn follow(path: &Path, control: &Arc<Control>) -> Result<(), Failure> {
    let (control, path) = (control.clone(), path.to_owned());
    if path.as_os_str() == "-" {
        std::thread::spawn(move || {
            stdin().lock().lines().map_while(Result::ok).for_each(|line| take(&control, &line))
        });
        return Ok(());
    }
    let read = |path: &Path| std::fs::read_to_string(path);
    let mut last =
        read(&path).map_err(|error| Failure::doing(format_args!("cannot read {}", path.display()), error))?;
    last.lines().for_each(|line| take(&control, line));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            // A file that is being rewritten may be absent for a moment.
            let Ok(text) = read(&path) else { continue };
            if text != last {
                text.lines().for_each(|line| take(&control, line));
                last = text;
            }
        }
    });
    Ok(())
}

fn take(control: &Control, line: &str) {
    if let Err(error) = conduct::obey(control, line) {
        eprintln!("settee: {error}");
    }
}
