//! `overdrive completions` and `overdrive man`: made from the same table as the parser.

use crate::exit::Ending;
use crate::{flags, output};
use anyhow::{Context, Result};
use clap_mangen::Man;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut flags::program(), "overdrive", &mut script);
    output::print(&String::from_utf8(script).context("the completion script")?)?;
    Ok(Ending::Done)
}

/// Prints one man page with a section for each command.
pub(crate) fn man() -> Result<Ending> {
    let mut command = flags::program();
    command.build();
    // Commands have sections below and no pages of their own.
    let whole = Man::new(command.clone());
    let mut page =
        rendered(|page| whole.render(page))?.replace("overdrive\\-", "overdrive ").replace("(1)", "");
    sections(&mut page, &command, "overdrive")?;
    output::print(&page)?;
    Ok(Ending::Done)
}

/// A section for each command that people are to know of, and for each of its own.
fn sections(page: &mut String, above: &clap::Command, name: &str) -> Result<()> {
    let is_told = |command: &&clap::Command| command.get_name() != "help" && !command.is_hide_set();
    for command in above.get_subcommands().filter(is_told) {
        let name = format!("{name} {}", command.get_name());
        let man = Man::new(command.clone());
        let section = rendered(|page| {
            man.render_synopsis_section(page)?;
            man.render_description_section(page)?;
            man.render_options_section(page)?;
            man.render_extra_section(page)
        })?;
        page.push_str(&format!(".SH {}\n", name.to_uppercase()));
        page.push_str(&section.replace(".SH ", ".SS "));
        sections(page, command, &name)?;
    }
    Ok(())
}

/// What is rendered, as text; the examples go without a heading, which would be "EXTRA".
fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<String> {
    let mut page = Vec::new();
    render(&mut page).context("the man page")?;
    Ok(String::from_utf8(page).context("the man page")?.replace(".SH EXTRA\n", ".PP\n"))
}
