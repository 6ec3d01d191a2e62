//! The servers that a person uses, and the token of each: in the keyring of the operating system, else in one file that
//! only its owner may read.

use crate::error::{ClientError, Result};
use crate::keyring::{Keyring, Unusable};
use estrade_model::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const FILE: &str = "contexts.json";
/// Is locked by whoever changes them.
const LOCK: &str = "contexts.lock";

/// Everything that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Contexts {
    /// The one that commands use unless told otherwise.
    pub current: Option<String>,
    pub contexts: BTreeMap<String, Context>,
    /// Which project a folder is deployed to, by the server's address and the folder's absolute path.
    pub projects: BTreeMap<String, BTreeMap<String, String>>,
    /// The same as earlier versions kept it, by the folder alone; it is moved when it is loaded.
    #[serde(skip_serializing)]
    folders: BTreeMap<String, String>,
}

/// A server, and who one is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub url: String,
    pub email: String,
    #[serde(flatten)]
    pub credential: Credential,
}

/// A token, or where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    Token(Secret),
    /// In the keyring of the operating system, under this name.
    Keyring(String),
}

/// Where a token was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    InKeyring,
    /// In the file; the reason, when there is a keyring.
    InFile(Option<Unusable>),
}

/// Who one is somewhere.
#[derive(Debug, Clone)]
pub struct Login {
    pub url: String,
    pub email: String,
    pub token: Secret,
}

impl Contexts {
    /// The current context.
    pub fn current(&self) -> Option<(&str, &Context)> {
        let name = self.current.as_deref()?;
        self.contexts.get(name).map(|context| (name, context))
    }

    /// A context by its name.
    pub fn find(&self, name: &str) -> Result<&Context> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            ClientError::Usage(if known.is_empty() {
                format!(
                    "there is no context `{name}`, nor any other; `estrade login URL` makes one"
                )
            } else {
                format!(
                    "there is no context `{name}`; there are {}",
                    known.join(", ")
                )
            })
        })
    }

    /// The project that a folder is deployed to on this server.
    pub fn project_of(&self, server: &str, folder: &str) -> Option<&str> {
        let known = self.projects.get(server)?.get(folder);
        known.map(String::as_str)
    }

    /// Moves what earlier versions remembered to the server that they meant, that of the current context: once another
    /// context is the current one, nobody knows any more. Without a current one it is forgotten, and asked for again.
    fn migrate_folders(&mut self) {
        let folders = std::mem::take(&mut self.folders);
        let Some((_, current)) = self.current().filter(|_| !folders.is_empty()) else {
            return;
        };
        let server = current.url.clone();
        let of_server = self.projects.entry(server).or_default();
        for (folder, project) in folders {
            of_server.entry(folder).or_insert(project);
        }
    }

    /// Remembers the project that a folder is deployed to on this server.
    pub fn set_project(&mut self, server: &str, folder: &str, project: &str) {
        let of_server = self.projects.entry(server.to_owned()).or_default();
        of_server.insert(folder.to_owned(), project.to_owned());
    }

    /// Remembers a login and uses it from now on; what had this name before.
    pub fn add(&mut self, name: &str, context: Context) -> Option<Context> {
        self.current = Some(name.to_owned());
        self.contexts.insert(name.to_owned(), context)
    }

    /// Forgets a context; when it was the current one, none is current unless only one is left.
    pub fn remove(&mut self, name: &str) -> Option<Context> {
        let removed = self.contexts.remove(name)?;
        if self.current.as_deref() == Some(name) {
            let only = (self.contexts.len() == 1).then(|| self.contexts.keys().next().cloned());
            self.current = only.flatten();
        }
        Some(removed)
    }
}

/// Where contexts are kept.
#[derive(Debug, Clone)]
pub struct ContextStore {
    directory: PathBuf,
}

impl ContextStore {
    /// In this directory.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where the XDG base directory specification puts it; `variable` reads the environment.
    pub fn locate(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let absolute = |name: &str| {
            let path = variable(name).map(PathBuf::from);
            // The specification: a relative path is invalid and ignored.
            path.filter(|path| path.is_absolute())
        };
        let home = || absolute("HOME").map(|home| home.join(".config"));
        let base = absolute("XDG_CONFIG_HOME")
            .or_else(home)
            .or_else(|| absolute("APPDATA"));
        let base = base.ok_or_else(|| {
            ClientError::Usage(
                "there is no home directory; set HOME, or ESTRADE_URL and ESTRADE_TOKEN".to_owned(),
            )
        })?;
        Ok(Self::new(base.join("estrade")))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Reads them; no file is none. A file that others may read is refused: its tokens may be known to them.
    pub fn load(&self) -> Result<Contexts> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if is_absent(&error) => return Ok(Contexts::default()),
            Err(error) => return Err(ClientError::file(&path)(error)),
        };
        refuse_readable_by_others(&path)?;
        let mut contexts: Contexts = serde_json::from_slice(&bytes).map_err(|error| {
            ClientError::Usage(format!(
                "{} cannot be read: {error}; remove it and log in again",
                path.display()
            ))
        })?;
        contexts.migrate_folders();
        Ok(contexts)
    }

    /// Writes them. The new file replaces the old one whole and is never readable by others, not even for a moment.
    pub fn save(&self, contexts: &Contexts) -> Result<()> {
        let path = self.path();
        let text = serde_json::to_vec_pretty(contexts)
            .map_err(|error| ClientError::Usage(error.to_string()))?;
        std::fs::create_dir_all(&self.directory).map_err(ClientError::file(&self.directory))?;
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)
            .map_err(ClientError::file(&self.directory))?;
        file.write_all(&text).map_err(ClientError::file(&path))?;
        file.as_file()
            .sync_all()
            .map_err(ClientError::file(&path))?;
        file.persist(&path)
            .map_err(|error| ClientError::file(&path)(error.error))?;
        Ok(())
    }

    /// Reads, changes and writes them. Programs that do so at once wait for each other: a login that another one wrote
    /// over would leave a token that nobody has.
    pub fn change<T>(&self, change: impl FnOnce(&mut Contexts) -> Result<T>) -> Result<T> {
        let _lock = self.lock();
        let mut contexts = self.load()?;
        let changed = change(&mut contexts)?;
        self.save(&contexts)?;
        Ok(changed)
    }

    /// None where there are no locks: they are no reason to refuse.
    fn lock(&self) -> Option<File> {
        std::fs::create_dir_all(&self.directory).ok()?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        // Whoever can open it can lock it.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.directory.join(LOCK)).ok()?;
        file.lock().ok()?;
        Some(file)
    }

    /// Remembers a login and uses it from now on; what had its name before. The token goes into the keyring if there is
    /// one that takes it, else into the file.
    pub async fn log_in(
        &self,
        name: &str,
        login: Login,
        keyring: Option<Keyring>,
    ) -> Result<(Kept, Option<Context>)> {
        let Login { url, email, token } = login;
        // A name of its own: until the file names it, what the file names is still there.
        let entry = format!("{:032x}", fastrand::u128(..));
        let label = format!("Estrade: {email} at {url}");
        let stored = match keyring {
            Some(keyring) => keyring.store(&entry, &label, &token).await.map_err(Some),
            None => Err(None),
        };
        let (credential, kept) = match stored {
            Ok(()) => (Credential::Keyring(entry.clone()), Kept::InKeyring),
            Err(reason) => (Credential::Token(token), Kept::InFile(reason)),
        };
        let context = Context {
            url,
            email,
            credential,
        };
        let saved = self.change(|contexts| Ok(contexts.add(name, context)));
        if let (Some(keyring), true) = (keyring, saved.is_err()) {
            // Nothing names it; one that stays all the same is a token that its owner can revoke.
            let _ = keyring.remove(&entry).await;
        }
        saved.map(|before| (kept, before))
    }
}

/// Also where the directory cannot be one, such as below `/dev/null`.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

#[cfg(unix)]
fn refuse_readable_by_others(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path).map_err(ClientError::file(path))?;
    let of_others = metadata.permissions().mode() & 0o077;
    if of_others == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(ClientError::Usage(format!(
        "others may read the tokens in {path}; `chmod 600 {path}`, and revoke them if that could have happened"
    )))
}

#[cfg(not(unix))]
fn refuse_readable_by_others(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(url: &str) -> Context {
        Context {
            url: url.to_owned(),
            email: "ada@example.com".to_owned(),
            credential: Credential::Token(Secret("secret-token".to_owned())),
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_private() {
        let home = tempfile::tempdir().unwrap();
        let store = ContextStore::new(home.path().join("a/b"));
        assert_eq!(store.load().unwrap(), Contexts::default());
        store
            .change(|contexts| {
                contexts.add("one", context("https://one"));
                contexts.add("two", context("https://two"));
                Ok(())
            })
            .unwrap();
        let loaded = store.load().unwrap();
        assert_eq!(loaded.current().unwrap().0, "two");
        assert_eq!(loaded.contexts.len(), 2);
        assert!(!format!("{loaded:?}").contains("secret-token"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |mode| {
                std::fs::set_permissions(store.path(), std::fs::Permissions::from_mode(mode))
                    .unwrap();
            };
            let found = std::fs::metadata(store.path())
                .unwrap()
                .permissions()
                .mode()
                & 0o777;
            assert_eq!(found, 0o600);
            mode(0o640);
            assert!(store.load().unwrap_err().to_string().contains("chmod 600"));
            mode(0o600);
        }
        std::fs::write(store.path(), "{").unwrap();
        assert!(matches!(store.load(), Err(ClientError::Usage(_))));
    }

    #[test]
    fn changes_at_once_are_all_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = ContextStore::new(home.path().join("a"));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..10 {
                        let name = format!("{thread}-{number}");
                        let add = |contexts: &mut Contexts| {
                            contexts.add(&name, context("https://one"));
                            Ok(())
                        };
                        store.change(add).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.load().unwrap().contexts.len(), 40);
    }

    #[test]
    fn a_file_says_where_a_token_is() {
        let before = r#"{"url":"https://one","email":"ada@example.com","token":"secret-token"}"#;
        let read: Context = serde_json::from_str(before).unwrap();
        assert_eq!(read, context("https://one"));
        assert_eq!(serde_json::to_string(&read).unwrap(), before);
        let elsewhere = Context {
            credential: Credential::Keyring("0a".to_owned()),
            ..read
        };
        let text = serde_json::to_string(&elsewhere).unwrap();
        assert!(
            text.ends_with(r#","keyring":"0a"}"#) && !text.contains("token"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Context>(&text).unwrap(), elsewhere);
        let nowhere = r#"{"url":"https://one","email":""}"#;
        assert!(serde_json::from_str::<Context>(nowhere).is_err());
    }

    #[test]
    fn a_folder_belongs_to_a_project_per_server() {
        let before = r#"{"current":"a","contexts":{"a":{"url":"https://a","email":"","token":"t"},
            "b":{"url":"https://b","email":"","token":"t"}},"folders":{"/site":"old"}}"#;
        let home = tempfile::tempdir().unwrap();
        let store = ContextStore::new(home.path().join("a"));
        // The file stays private.
        store.save(&Contexts::default()).unwrap();
        std::fs::write(store.path(), before).unwrap();
        assert_eq!(
            store.load().unwrap().project_of("https://a", "/site"),
            Some("old")
        );
        // A login to another server takes nothing along.
        let log_in = |contexts: &mut Contexts| Ok(contexts.add("b", context("https://b")));
        store.change(log_in).unwrap();
        let mut contexts = store.load().unwrap();
        assert_eq!(contexts.project_of("https://a", "/site"), Some("old"));
        assert_eq!(contexts.project_of("https://b", "/site"), None);
        contexts.set_project("https://a", "/site", "new");
        contexts.set_project("https://b", "/site", "other");
        let text = serde_json::to_string(&contexts).unwrap();
        let read: Contexts = serde_json::from_str(&text).unwrap();
        assert_eq!(read, contexts);
        assert_eq!(read.project_of("https://a", "/site"), Some("new"));
        assert_eq!(read.project_of("https://b", "/site"), Some("other"));
        assert_eq!(read.project_of("https://b", "/"), None);
    }

    #[test]
    fn removing_the_current_one_leaves_no_wrong_one() {
        let mut contexts = Contexts::default();
        for name in ["a", "b", "c"] {
            contexts.add(name, context(name));
        }
        contexts.remove("c").unwrap();
        assert_eq!(contexts.current, None);
        contexts.current = Some("b".to_owned());
        contexts.remove("b").unwrap();
        assert_eq!(contexts.current.as_deref(), Some("a"));
        assert!(contexts.remove("b").is_none());
        assert!(
            contexts
                .find("b")
                .unwrap_err()
                .to_string()
                .contains("there are a")
        );
    }

    #[test]
    fn the_directory_follows_the_environment() {
        let locate = |set: &'static [(&'static str, &'static str)]| {
            let find = |name: &str| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            ContextStore::locate(find).map(|store| store.path())
        };
        let path = |set| locate(set).unwrap();
        assert_eq!(
            path(&[("HOME", "/h")]),
            Path::new("/h/.config/estrade/contexts.json")
        );
        assert_eq!(
            path(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]),
            Path::new("/x/estrade/contexts.json")
        );
        assert_eq!(
            path(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")]),
            Path::new("/h/.config/estrade/contexts.json")
        );
        assert!(locate(&[]).is_err());
    }
}
