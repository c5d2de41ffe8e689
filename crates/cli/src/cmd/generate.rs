//! `overdrive completions` and `overdrive man`: made from the same table as the parser.

use crate::exit::Ending;
use crate::flags::Flags;
use crate::output;
use anyhow::{Context, Result};
use clap::CommandFactory;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "overdrive", &mut script);
    output::print(&String::from_utf8(script).context("the completion script")?)?;
    Ok(Ending::Done)
}

/// Prints one man page with a section for each subcommand.
pub(crate) fn man() -> Result<Ending> {
    let mut page = Vec::new();
    let mut command = Flags::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page).context("the man page")?;
    sections(&mut page, &command, "overdrive").context("the man page")?;
    output::print(&String::from_utf8(page).context("the man page")?)?;
    Ok(Ending::Done)
}

/// A section for each subcommand, and for each of its own.
fn sections(page: &mut Vec<u8>, above: &clap::Command, name: &str) -> std::io::Result<()> {
    for subcommand in above.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        let name = format!("{name} {}", subcommand.get_name());
        let man = clap_mangen::Man::new(subcommand.clone());
        page.extend(format!(".SH {}\n", name.to_uppercase()).bytes());
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
        man.render_extra_section(page)?;
        sections(page, subcommand, &name)?;
    }
    Ok(())
}
