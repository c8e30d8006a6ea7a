//! The process's title in `ps`: `set-proc-title` and `proc-title-template`.
//!
//! A title overwrites the command line in the process's memory. A longer one continues in the memory of the environment, which has been
//! copied elsewhere by then.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use config::Settings;

/// Fields of `/proc/self/stat`, counted from 1 like in proc(5).
const ARG_START: usize = 48;
const ENV_END: usize = 51;

/// The memory that a title is written to.
struct Area {
    memory: File,
    at: Range<u64>,
}

/// The title of this process.
pub struct Title {
    area: Option<Mutex<Area>>,
    /// The template's `title`: the program's name as it was called.
    program: String,
    config_file: Option<PathBuf>,
}

impl Title {
    /// Prepares the title if it is turned on. Must be called before the first thread is started.
    #[must_use]
    pub fn prepare(settings: &Settings, config_file: Option<&Path>) -> Title {
        let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
        // Without access to the memory, the command line stays visible. Nothing else depends on it.
        let area = if settings.set_proc_title.get() { Area::take().ok().map(Mutex::new) } else { None };
        Title { area, program, config_file: config_file.map(Path::to_owned) }
    }

    /// Shows the title of the present settings.
    pub fn show(&self, settings: &Settings) {
        let Some(area) = &self.area else { return };
        let Ok(area) = area.lock() else { return };
        // A failure leaves the previous title.
        let _ = area.write(self.text(settings).as_bytes());
    }

    fn text(&self, settings: &Settings) -> String {
        let template = settings.proc_title_template.get();
        expand(&template, |name| self.variable(name, settings)).trim_matches(' ').to_owned()
    }

    fn variable(&self, name: &str, settings: &Settings) -> String {
        let (plain, encrypted) = (settings.port.get(), settings.tls_port.get());
        let port = if plain > 0 { plain } else { encrypted };
        match name {
            "title" => self.program.clone(),
            "listen-addr" if port > 0 => {
                let bind = settings.bind.get();
                format!("{}:{port}", bind.split(' ').next().filter(|address| !address.is_empty()).unwrap_or("*"))
            }
            "listen-addr" | "unixsocket" => settings.unixsocket.get().to_string(),
            "port" => plain.to_string(),
            "tls-port" => encrypted.to_string(),
            "config-file" => {
                self.config_file.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
            }
            // The words for clusters and Sentinel are empty: there are none.
            _ => String::new(),
        }
    }
}

/// Replaces the template's variables, which are in braces. `{{` is a brace. The configuration has checked the template.
fn expand(template: &str, variable: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        rest = match (after.strip_prefix('{'), after.split_once('}')) {
            (Some(after), _) => {
                text.push('{');
                after
            }
            (None, Some((name, after))) => {
                text += &variable(name);
                after
            }
            (None, None) => after,
        };
    }
    text + rest
}

impl Area {
    /// Takes the memory of the command line and of the environment behind it.
    fn take() -> io::Result<Area> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let [arg_start, arg_end, env_start, env_end] = addresses(&stat).ok_or(io::ErrorKind::InvalidData)?;
        let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
        if arg_end != env_start {
            return Ok(Area { memory, at: arg_start..arg_end });
        }
        move_environment();
        Ok(Area { memory, at: arg_start..env_end })
    }

    /// Writes a title, cut to the size of the memory, with at least one zero behind it.
    fn write(&self, title: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.at.end - self.at.start).unwrap_or(0);
        let mut bytes = vec![0; room];
        let len = title.len().min(room.saturating_sub(1));
        bytes[..len].copy_from_slice(&title[..len]);
        self.memory.write_all_at(&bytes, self.at.start)
    }
}

/// Returns the begin and end of the arguments and of the environment, from a `stat` file.
fn addresses(stat: &str) -> Option<[u64; 4]> {
    // The second field is the name, in parentheses, and may itself contain blanks and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<u64> =
        after_name.split_ascii_whitespace().skip(ARG_START - 3).map_while(|field| field.parse().ok()).collect();
    let found: [u64; ENV_END - ARG_START + 1] = fields.get(..ENV_END - ARG_START + 1)?.try_into().ok()?;
    let is_whole = found[0] > 0 && found.is_sorted() && found[0] < found[1];
    is_whole.then_some(found)
}

/// Moves the environment to new memory.
fn move_environment() {
    for (name, value) in std::env::vars_os() {
        // SAFETY: called before the first thread is started, so no thread reads the environment meanwhile. The C library keeps a copy of
        // the value.
        unsafe { std::env::set_var(name, value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_expanded() {
        let settings = Settings::new();
        let title = Title { area: None, program: "penstock".into(), config_file: Some("/a b".into()) };
        let mut loader = config::Loader::new(&settings);
        let mut check = |lines: &[&str], text: &str| {
            for line in lines {
                loader.directive(&resp::splitargs::split_args(line.as_bytes()).unwrap()).unwrap();
            }
            assert_eq!(title.text(&settings), text, "{lines:?}");
        };
        check(&[], "penstock *:6379");
        check(&["bind 127.0.0.1 ::1", "port 7000"], "penstock 127.0.0.1:7000");
        check(&["proc-title-template \"  {{x} {port}{tls-port} {server-mode} {config-file} y \""], "{x} 70000  /a b y");
        check(&["proc-title-template \"{listen-addr}|{unixsocket}\"", "port 0", "unixsocket /x"], "/x|/x");
    }

    #[test]
    fn addresses_are_found_behind_any_name() {
        let numbers: Vec<String> = (4..=60).map(|n| n.to_string()).collect();
        let stat = format!("7 (a) b (c) S {}", numbers.join(" "));
        assert_eq!(addresses(&stat), Some([48, 49, 50, 51]));
        assert_eq!(addresses(&format!("7 (a) S {}", numbers[..40].join(" "))), None);
        assert_eq!(addresses(""), None);
        assert!(addresses(&std::fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
