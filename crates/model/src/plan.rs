//! Plans: what a project may use. Data, not code: shipped as a table, overridable in the configuration.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one plan grants. Sizes are binary (1 MB = 1,048,576 bytes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Memory in MB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// CPU cores.
    pub cpus: u64,
    /// Disk space in GB; a hard cap on what a release may hold.
    #[serde(rename = "diskGB")]
    pub disk_gb: u64,
    /// Price per hour in the smallest unit of the installation's currency; 0 on your own machine.
    #[serde(default)]
    pub hourly_price: u64,
}

impl Plan {
    /// The disk cap in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_gb.saturating_mul(1 << 30)
    }
}

/// Every plan of this installation, by `planID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans(BTreeMap<String, Plan>);

impl Default for Plans {
    fn default() -> Self {
        let table = [
            ("nano", 512, 1, 2),
            ("micro", 1024, 1, 5),
            ("standard-1x", 2048, 2, 10),
            ("standard-2x", 4096, 2, 20),
            ("performance-1x", 6144, 4, 40),
            ("performance-2x", 8192, 4, 60),
        ];
        let plan = |(id, memory_mb, cpus, disk_gb): (&str, u64, u64, u64)| {
            (
                id.to_owned(),
                Plan {
                    memory_mb,
                    cpus,
                    disk_gb,
                    hourly_price: 0,
                },
            )
        };
        Self(table.into_iter().map(plan).collect())
    }
}

impl Plans {
    /// Adds a plan, or replaces the one of that id.
    pub fn set(&mut self, id: String, plan: Plan) {
        self.0.insert(id, plan);
    }

    /// The plan of that id.
    pub fn get(&self, id: &str) -> Option<&Plan> {
        self.0.get(id)
    }

    /// The ids, for an error message that helps.
    pub fn ids(&self) -> String {
        self.0
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Every plan by id.
    pub fn all(&self) -> &BTreeMap<String, Plan> {
        &self.0
    }
}

/// Bundle plans: levels of service that public clients know by name.
pub const BUNDLE_PLANS: [&str; 3] = ["free", "standard", "pro"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_six_plans_of_the_specification() {
        let plans = Plans::default();
        let row = |id: &str| {
            plans
                .get(id)
                .map(|plan| (plan.memory_mb, plan.cpus, plan.disk_gb))
        };
        assert_eq!(row("nano"), Some((512, 1, 2)));
        assert_eq!(row("micro"), Some((1024, 1, 5)));
        assert_eq!(row("standard-1x"), Some((2048, 2, 10)));
        assert_eq!(row("standard-2x"), Some((4096, 2, 20)));
        assert_eq!(row("performance-1x"), Some((6144, 4, 40)));
        assert_eq!(row("performance-2x"), Some((8192, 4, 60)));
        assert_eq!(plans.all().len(), 6);
    }
}
