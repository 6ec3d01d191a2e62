//! What package managers keep from build to build.

use crate::support::{EngineFixture, MIB, context, now, stranger};
use bollard::query_parameters::ListImagesOptions;
use estrade_model::{OwnerId, ProjectId, ReleaseId};
use estrade_runtime::{BuildSpec, BuiltCache, CacheKey, ImageRef, OwnImage, SavedCache};
use std::time::Duration;

const BASE: &str = "estrade-test/base:2";

struct Builder<'f> {
    fixture: &'f EngineFixture,
    base: ImageRef,
}

impl<'f> Builder<'f> {
    async fn new(fixture: &'f EngineFixture) -> Self {
        fixture.engine.ensure_network(fixture.owner).await.unwrap();
        let base = fixture.engine.image(&BASE.parse().unwrap()).await.unwrap();
        Self {
            fixture,
            base: base.unwrap().id,
        }
    }

    fn key(&self, owner: OwnerId, project: ProjectId, installs: &str) -> CacheKey {
        CacheKey {
            project,
            label: self.fixture.engine.cache_label(owner, project, []),
            base: self.base.clone(),
            secrets: String::new(),
            installs: installs.to_owned(),
        }
    }

    fn spec(&self, key: &CacheKey, release: ReleaseId) -> BuildSpec {
        BuildSpec {
            image: OwnImage {
                project: key.project,
                release,
            },
            owner: self.fixture.owner,
            dockerfile: "Dockerfile".into(),
            args: Vec::new(),
            secrets: Vec::new(),
            cache: true,
            memory: 256 * MIB,
            nano_cpus: 1_000_000_000,
            limit: Duration::from_secs(100),
            now: now(),
        }
    }

    /// Runs a script as the step that installs, in a stage with this label, and keeps what it leaves behind.
    async fn build(&self, key: &CacheKey, label: &str, script: &str, max_bytes: u64) -> SavedCache {
        let engine = &self.fixture.engine;
        let from = engine.use_cache(key, now()).await.unwrap();
        let from = from.as_ref().unwrap_or(&self.base);
        let dockerfile = format!(
            "FROM {from} AS build\nLABEL {label}\nRUN {script}\nFROM scratch\nCOPY --from=build /etc/hostname /\n"
        );
        let release = ReleaseId::generate(now().millis(), 5);
        let spec = self.spec(key, release);
        let files = context(&[("Dockerfile", &dockerfile)]);
        engine.build(&spec, files).finish().await.unwrap();
        let built = BuiltCache {
            key: key.clone(),
            release,
            stage: 0,
            max_bytes,
        };
        engine.save_cache(&built, now()).await.unwrap()
    }
}

#[tokio::test]
async fn a_cache_is_of_one_owner_one_project_and_one_base() {
    let fixture = EngineFixture::new();
    let (engine, owner) = (&fixture.engine, fixture.owner);
    let builder = Builder::new(&fixture).await;
    let key = builder.key(owner, fixture.project, "a");
    let fill = "mkdir -p /var/cache/estrade && head -c 100000 /dev/urandom >/var/cache/estrade/x";
    let saved = builder.build(&key, &key.label, fill, MIB).await;
    assert!(
        matches!(
            saved,
            SavedCache::Kept {
                bytes: 100_000..200_000
            }
        ),
        "{saved:?}"
    );

    let changed = builder.key(owner, fixture.project, "b");
    let other_owner = OwnerId::generate(now().millis(), 7);
    let other_project = ProjectId::generate(now().millis(), 7);
    let mut other_base = changed.clone();
    other_base.base = "sha256:0000".parse().unwrap();
    for other in [
        builder.key(other_owner, fixture.project, "b"),
        builder.key(owner, other_project, "b"),
        other_base,
    ] {
        assert_eq!(
            engine.use_cache(&other, now()).await.unwrap(),
            None,
            "{other:?}"
        );
    }
    // Who installs the same begins with what was there before.
    assert_eq!(engine.use_cache(&key, now()).await.unwrap(), None);
    let first = engine.use_cache(&changed, now()).await.unwrap();
    assert!(first.is_some());
    let saved = builder
        .build(&changed, &key.label, "test -f /var/cache/estrade/x", MIB)
        .await;
    assert!(matches!(saved, SavedCache::Kept { .. }), "{saved:?}");
    assert_eq!(engine.use_cache(&changed, now()).await.unwrap(), first);
    assert_eq!(
        engine.projects_with_caches().await.unwrap(),
        [fixture.project]
    );

    engine.remove_caches(&[other_project]).await.unwrap();
    assert_eq!(engine.use_cache(&changed, now()).await.unwrap(), first);
    engine.remove_caches(&[fixture.project]).await.unwrap();
    assert_eq!(engine.projects_with_caches().await.unwrap(), []);
    assert_eq!(engine.use_cache(&changed, now()).await.unwrap(), None);
    // Layers that stand on a cache go with it.
    let hour = Duration::from_hours(1);
    engine.prune_images(now().before(hour)).await.unwrap();
    let image = engine.image(&first.unwrap()).await.unwrap();
    assert_eq!(image, None);
    fixture.clean().await;
}

#[tokio::test]
async fn neither_layers_of_others_nor_too_much_is_kept() {
    let fixture = EngineFixture::new();
    let (engine, owner) = (&fixture.engine, fixture.owner);
    let builder = Builder::new(&fixture).await;
    let key = builder.key(owner, fixture.project, "a");
    let fill = "mkdir -p /var/cache/estrade && echo x >/var/cache/estrade/x";
    // A line of a build can name any image; this one has another label.
    let other = engine.cache_label(OwnerId::generate(now().millis(), 7), fixture.project, []);
    assert_eq!(
        builder.build(&key, &other, fill, MIB).await,
        SavedCache::Missing
    );
    assert_eq!(
        builder.build(&key, &key.label, "true", MIB).await,
        SavedCache::Missing
    );
    assert_eq!(engine.projects_with_caches().await.unwrap(), []);

    assert!(matches!(
        builder.build(&key, &key.label, fill, MIB).await,
        SavedCache::Kept { .. }
    ));
    // The rest of the layer does not count.
    let more = "head -c 5000000 /dev/zero >/more";
    let second = builder.key(owner, fixture.project, "b");
    assert!(matches!(
        builder.build(&second, &key.label, more, MIB).await,
        SavedCache::Kept { .. }
    ));
    let junk = "test -f /var/cache/estrade/x && head -c 5000000 /dev/zero >/var/cache/estrade/junk";
    let third = builder.key(owner, fixture.project, "c");
    assert_eq!(
        builder.build(&third, &key.label, junk, MIB).await,
        SavedCache::TooLarge
    );
    assert!(
        engine.use_cache(&third, now()).await.unwrap().is_some(),
        "its layers are there"
    );
    let fourth = builder.key(owner, fixture.project, "d");
    assert_eq!(engine.use_cache(&fourth, now()).await.unwrap(), None);

    let (hour, later) = (
        Duration::from_hours(1),
        now().after(Duration::from_hours(1)),
    );
    engine
        .prune_caches(now().before(hour), now().before(hour))
        .await
        .unwrap();
    assert_eq!(
        engine.projects_with_caches().await.unwrap(),
        [fixture.project]
    );
    engine.prune_caches(later, later).await.unwrap();
    assert_eq!(engine.projects_with_caches().await.unwrap(), []);
    assert!(
        engine
            .image(&BASE.parse().unwrap())
            .await
            .unwrap()
            .is_some()
    );
    fixture.clean().await;
}

/// What a step prints can look like the engine's lines, so that a layer gets no name.
#[tokio::test]
async fn layers_without_a_name_are_removed_when_they_are_old() {
    let fixture = EngineFixture::new();
    let engine = &fixture.engine;
    let builder = Builder::new(&fixture).await;
    let key = builder.key(fixture.owner, fixture.project, "a");
    let hide = "echo hidden >/x && echo 'Step 1/1 : FROM x'";
    let dockerfile = format!(
        "FROM {}\nLABEL {}\nRUN {hide}\nRUN false\n",
        builder.base, key.label
    );
    let spec = builder.spec(&key, ReleaseId::generate(now().millis(), 5));
    let files = context(&[("Dockerfile", &dockerfile)]);
    engine.build(&spec, files).finish().await.unwrap_err();

    let (name, _) = key.label.split_once('=').unwrap();
    let left = || async {
        let filters = [("label", name), ("dangling", "true")];
        let filters = filters.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
        let options = ListImagesOptions {
            filters: Some(filters.into()),
            ..Default::default()
        };
        stranger().list_images(Some(options)).await.unwrap().len()
    };
    assert_eq!(left().await, 1);
    engine
        .prune_images(now().before(Duration::from_hours(1)))
        .await
        .unwrap();
    assert_eq!(left().await, 1, "it may be used yet");
    engine
        .prune_images(now().after(Duration::from_hours(1)))
        .await
        .unwrap();
    assert_eq!(left().await, 0);
    fixture.clean().await;
}
