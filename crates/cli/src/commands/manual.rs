//! `settee completions` and `settee man`: what shells complete, and manual pages. Both follow from the flags themselves.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use super::Failure;

/// Print what a shell completes of this command's flags
#[derive(Args)]
#[command(after_help = "\
EXAMPLES
  settee completions bash > /usr/share/bash-completion/completions/settee
  settee completions zsh > \"${fpath[1]}/_settee\"
  settee completions fish > ~/.config/fish/completions/settee.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages of all commands into a folder
#[derive(Args)]
#[command(after_help = "\
EXAMPLES
  settee man /usr/local/share/man/man1    then: man settee, man settee-view-query")]
pub(crate) struct ManArgs {
    /// The folder; it is made where it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    // Into memory first: the generator does not survive a reader that has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "settee", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)
        .map_err(|error| Failure::doing("the completions are not written", error))
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let doing = |error| Failure::doing(format_args!("cannot write into {}", args.folder.display()), error);
    fs::create_dir_all(&args.folder).map_err(doing)?;
    clap_mangen::generate_to(command, &args.folder).map_err(doing)
}
