//! The labels by which Estrade knows its own things among a stranger's.

use crate::installation::Installation;
use crate::instance::InstanceKey;
use std::collections::HashMap;
use std::str::FromStr;

/// Which installation of Estrade made it.
pub(crate) const INSTALLATION: &str = "estrade.installation";
pub(crate) const OWNER: &str = "estrade.owner";
/// The project it belongs to.
pub(crate) const PROJECT: &str = "estrade.project";
/// The release it runs.
pub(crate) const RELEASE: &str = "estrade.release";
/// Which of the release's instances it is.
pub(crate) const INSTANCE: &str = "estrade.instance";
/// The port it listens on.
pub(crate) const PORT: &str = "estrade.port";
/// What it was made from, in short.
pub(crate) const SPEC: &str = "estrade.spec";
/// `quota` where the engine limits the disk of it.
pub(crate) const DISK: &str = "estrade.disk";
/// Whose builds may use its layers as cache; a hash of the installation follows. An instruction of a Dockerfile can change the
/// value, but not remove the label.
const CACHE_PREFIX: &str = "estrade.cache-";
/// Which cache of a package manager an image has, or stands on.
pub(crate) const PACKAGES: &str = "estrade.packages";
/// The name of a volume, as its project calls it.
pub(crate) const VOLUME: &str = "estrade.volume";

impl Installation {
    /// The label that everything of this installation carries, and others as given.
    pub(crate) fn labels<const N: usize>(
        &self,
        others: [(&str, String); N],
    ) -> HashMap<String, String> {
        let own = (INSTALLATION.to_owned(), self.0.clone());
        let others = others
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        std::iter::once(own).chain(others).collect()
    }

    /// The name of the label that every layer of a build has.
    pub(crate) fn cache_label(&self) -> String {
        let mut hasher =
            blake3::Hasher::new_derive_key("estrade label of an installation's layers");
        hasher.update(self.0.as_bytes());
        format!("{CACHE_PREFIX}{}", &hasher.finalize().to_hex()[..16])
    }

    /// Whether a thing with these labels is of this installation.
    pub(crate) fn made(&self, labels: Option<&HashMap<String, String>>) -> bool {
        labels.and_then(|labels| labels.get(INSTALLATION)) == Some(&self.0)
    }

    /// A filter for lists: things of this installation that have these labels (`key` or `key=value`).
    pub(crate) fn filter(&self, also: &[String]) -> HashMap<String, Vec<String>> {
        let mut labels = vec![format!("{INSTALLATION}={}", self.0)];
        labels.extend_from_slice(also);
        HashMap::from([("label".to_owned(), labels)])
    }
}

impl InstanceKey {
    pub(crate) fn read(labels: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            owner: read(labels, OWNER)?,
            project: read(labels, PROJECT)?,
            release: read(labels, RELEASE)?,
            number: read(labels, INSTANCE)?,
        })
    }
}

/// The value of a label, if it is there and makes sense.
pub(crate) fn read<T: FromStr>(labels: &HashMap<String, String>, key: &str) -> Option<T> {
    labels.get(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_the_same_installation_count() {
        let ours: Installation = "a1".parse().unwrap();
        let theirs: Installation = "a11".parse().unwrap();
        let labels = ours.labels([(PORT, "80".into())]);
        assert!(ours.made(Some(&labels)));
        assert!(!theirs.made(Some(&labels)));
        assert!(!ours.made(Some(&HashMap::new())));
        assert!(!ours.made(None));
        assert_eq!(read::<u16>(&labels, PORT), Some(80));
    }
}
