//! What a folder of sources is, by what is in it.

use crate::error::{Result, refused};
use crate::frameworks::{Detected, Facts, Found, choose};
use crate::settings::Settings;
use crate::sources::{Sources, Tree};
use estrade_model::platform::Platform;

/// What these sources are; a folder that shows nothing is a static site.
///
/// # Errors
///
/// A manifest cannot be read, or what the sources are cannot be built here.
pub fn detect(sources: &dyn Sources, settings: &Settings) -> Result<Detected> {
    let tree = Tree::new(sources);
    let facts = Facts::read(&tree)?;
    let Some(found) = resolve(&facts, settings)? else {
        return Ok(Detected {
            platform: Platform::Docker,
            name: "an own Dockerfile",
            why: Some("build.dockerfile".to_owned()),
            root: None,
        });
    };
    let is_static = found.framework.platform == Platform::Static;
    if is_static && let Some(command) = &facts.hosting.build {
        let advice = format!(
            "builds with `{}`, for which nothing is known here; deploy the folder that it writes, or add a Dockerfile",
            command.shown()
        );
        return Err(refused(facts.hosting.file, advice));
    }
    Ok(Detected {
        platform: found.framework.platform,
        name: found.framework.name,
        why: found.why(&facts)?,
        root: facts.hosting.output.clone().filter(|_| is_static),
    })
}

/// What builds these sources; none when that is an own Dockerfile that the settings name.
pub(crate) fn resolve(facts: &Facts<'_, '_>, settings: &Settings) -> Result<Option<Found>> {
    let completed = settings.completed(facts.tree, &[])?;
    if completed.dockerfile().is_some() {
        return Ok(None);
    }
    choose(facts).map(Some)
}
