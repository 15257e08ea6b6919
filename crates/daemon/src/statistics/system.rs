//! The machine.

use stats::{Across, Metric, Row, SystemStats, Unit, gauge};

const PROCESSOR_HELP: &str = "Processor time of the process in the last second; 100 is one processor.";
const RESIDENT_HELP: &str = "Resident memory of the process.";
/// Couchbase has several processes, and says in a label which one a figure is about.
const PROCESS: &[(&str, &str)] = &[("proc", "settee")];

/// REST shows them as `systemStats` of each node, too.
pub(crate) static SYSTEM: &[Row<SystemStats>] = &[
    gauge(
        &["mem_total"],
        Unit::Bytes,
        "Memory of the machine or of its control group.",
        |f: &SystemStats| f.memory_total.into(),
    )
    .metrics(&[Metric::new("sys_mem_total"), Metric::new("sys_mem_limit")])
    .not_in_stat(),
    gauge(
        &["mem_free", "mem_actual_free"],
        Unit::Bytes,
        "Memory that a process could have.",
        |f: &SystemStats| f.memory_free.into(),
    )
    .metrics(&[Metric::new("sys_mem_free"), Metric::new("sys_mem_actual_free")])
    .not_in_stat(),
    gauge(
        &["mem_actual_used", "mem_used_sys"],
        Unit::Bytes,
        "Memory that no process could have.",
        |f: &SystemStats| f.memory_total.saturating_sub(f.memory_free).into(),
    )
    .metrics(&[Metric::new("sys_mem_actual_used")])
    .not_in_stat(),
    gauge(&["swap_total"], Unit::Bytes, "Swap space.", |f: &SystemStats| f.swap_total.into())
        .metrics(&[Metric::new("sys_swap_total")])
        .not_in_stat(),
    gauge(&["swap_used"], Unit::Bytes, "Swap space in use.", |f: &SystemStats| f.swap_used.into())
        .metrics(&[Metric::new("sys_swap_used")])
        .not_in_stat(),
    gauge(&[], Unit::Count, "Processors of the machine.", |f: &SystemStats| f.cpu_cores.into())
        .metrics(&[Metric::new("sys_cpu_cores_available")]),
    gauge(
        &["cpu_utilization_rate"],
        Unit::Percent,
        "Use of all processors in the last second.",
        |f: &SystemStats| f.cpu_utilization_percent.into(),
    )
    .metrics(&[Metric::new("sys_cpu_utilization_rate"), Metric::new("sys_cpu_host_utilization_rate")])
    .not_in_stat()
    .across(Across::Mean),
    gauge(
        &[],
        Unit::Percent,
        "Processor time that a hypervisor gave to other machines in the last second, of all processors.",
        |f: &SystemStats| f.cpu_stolen_percent.into(),
    )
    .metrics(&[Metric::new("sys_cpu_stolen_rate")]),
    gauge(&[], Unit::Percent, PROCESSOR_HELP, |f: &SystemStats| f.process_cpu_percent.into())
        .metrics(&[Metric::one_of("sysproc_cpu_utilization", PROCESSOR_HELP, PROCESS)]),
    gauge(&[], Unit::Bytes, RESIDENT_HELP, |f: &SystemStats| f.process_resident.into())
        .metrics(&[Metric::one_of("sysproc_mem_resident", RESIDENT_HELP, PROCESS)]),
    gauge(&[], Unit::Bytes, "Size of the file system with the data.", |f: &SystemStats| f.disk_total.into())
        .metrics(&[Metric::new("settee_disk_total_bytes")]),
    gauge(&[], Unit::Bytes, "Used bytes of the file system with the data.", |f: &SystemStats| {
        f.disk_used.into()
    })
    .metrics(&[Metric::new("settee_disk_used_bytes")]),
];
