"""What a class needs, from what the load test measured: the figures in notebooks/classroom.md are written by this file.

python -m book.classroom.page      bring the page up to date with tests/bench/results/class.json
"""

import json
import math
import sys

from book import paths

PAGE = paths.NOTEBOOKS / "classroom.md"
RESULT = paths.ROOT / "tests/bench/results/class.json"
BEGIN, END = "<!-- written by book.classroom.page: begin -->", "<!-- written by book.classroom.page: end -->"

# The book's own budget for a chapter that builds the real model; chapter tests hold it. Not measured by the load test.
BIG_KERNEL_MIB = 1300
SYSTEM_GIB = 2.0  # left to the operating system and its file cache
NODE_GIB, NODE_CORES = 32, 8  # the Kubernetes node of the example
SHARED_NODE_GIB = 4.0  # of it for the system, the kubelet and the pods that every node runs


def gib(mib):
    return mib / 1024


def student_mib(result, kernel_mib=None):
    """MiB of one student: the server, and a kernel (the largest measured one unless told otherwise)."""
    held = result["memory_mib"]
    return held["server_pss"]["max"] + (held["kernel_pss"]["max"] if kernel_mib is None else kernel_mib)


def machine_gib(result, students, kernel_mib=None):
    """GiB that one machine needs for so many students: hub, proxy, system and everybody's server and kernel."""
    shared = result["memory_mib"]["hub"] + result["memory_mib"]["proxy"]
    return gib(shared + students * student_mib(result, kernel_mib)) + SYSTEM_GIB


def login_seconds(result, students, cores):
    """Until the last of so many students has a first result, all starting at once: their CPU seconds over the cores.

    A lower bound on cores as fast as those of the test: it leaves out the hub, the proxy and whatever else runs.
    """
    cpu = result["cpu"]
    each = cpu["server_seconds"]["median"] + cpu["kernel_seconds_to_first_result"]["median"]
    return students * each / cores


def kubernetes(result, students=300):
    """Settings for one student's pod and the cluster, from the measured figures."""
    guarantee = math.ceil(student_mib(result) / 128) * 128
    limit = math.ceil(gib(student_mib(result, 2 * BIG_KERNEL_MIB)))
    by_memory = math.floor((NODE_GIB - SHARED_NODE_GIB) * 1024 / guarantee)
    nodes = math.ceil(students / by_memory)
    return {
        "guarantee_mib": guarantee,
        "limit_gib": limit,
        "students_a_node": by_memory,
        "nodes": nodes,
        "cpu_guarantee": math.floor(100 * (NODE_CORES - 1) / by_memory) / 100,
        "login_seconds": login_seconds(result, students, nodes * NODE_CORES),
        "storage_gib": max(1, math.ceil(4 * gib(result["home_mib"]["max"]))),
    }


def measured(result):
    about, seconds, held = result["provenance"], result["seconds"], result["memory_mib"]
    crash, saves = result["crash"], result["saves"]
    count = result["settings"]["students"]

    def row(name, values, unit):
        return f"| {name} | {values['median']:.1f} {unit} | {values['p95']:.1f} {unit} | {values['max']:.1f} {unit} |"

    return [
        (
            f"Measured on {about['date'][:10]}: {count} students at once, every cell without a pause, `{about['chapter']}` "
            f"({about['code_cells']} code cells), {about['cores']} cores ({about['cpu']}), {about['memory_gib']} GiB, "
            f"JupyterHub {about['jupyterhub']}, JupyterLab {about['jupyterlab']}, torch {about['torch']}."
        ),
        "",
        "| | median | 95th percentile | largest |",
        "|---|---|---|---|",
        row("from the login to a server", seconds["server"], "s"),
        row("from the login to the first result", seconds["first_result"], "s"),
        row("the whole chapter", seconds["chapter"], "s"),
        row("the slowest save of a student", seconds["slowest_save"], "s"),
        row("memory of a student's server (PSS)", held["server_pss"], "MiB"),
        row("memory of the chapter's kernel (PSS)", held["kernel_pss"], "MiB"),
        row("CPU time of a student's server", result["cpu"]["server_seconds"], "s"),
        row(
            "CPU time of a kernel up to the first result",
            result["cpu"]["kernel_seconds_to_first_result"],
            "s",
        ),
        row("CPU time of a kernel, the whole chapter", result["cpu"]["kernel_seconds"], "s"),
        "",
        (
            f"Hub {held['hub']} MiB, proxy {held['proxy']} MiB, everything together at most "
            f"{gib(held['total_pss_peak']):.1f} GiB. Failed: {len(result['failures'])} of {count}. "
            f"Saves acknowledged: {saves['acknowledged']}; saved cells looked for afterwards: {saves['cells_saved']}, "
            f"lost: {saves['cells_lost']}."
        ),
        "",
        (
            f"One server was killed (`kill -9`) while it saved: lost cells {crash['cells_lost']}, lost saves "
            f"{crash['versions_lost']}, other students disturbed {crash['others_disturbed']}; its student had run a cell "
            f"on a new server {crash['seconds_until_back']:.0f} s later."
        ),
    ]


def one_machine(result, students=30):
    rows = [
        "",
        f"### A class of {students} on one machine",
        "",
        "| | memory |",
        "|---|---|",
        f"| everybody has this chapter open | {machine_gib(result, students):.0f} GiB |",
        (
            f"| everybody has a chapter with the real model open ({BIG_KERNEL_MIB} MiB, the book's budget for one) | "
            f"{machine_gib(result, students, BIG_KERNEL_MIB):.0f} GiB |"
        ),
        "",
        f"Both count the largest server and kernel measured, the hub, the proxy and {SYSTEM_GIB:.0f} GiB for the system.",
        "",
        f"| cores | all {students} log in at once: the last first result, at the earliest |",
        "|---|---|",
    ]
    about = result["provenance"]
    sum_here = login_seconds(result, result["settings"]["students"], about["cores"])
    return (
        rows
        + [f"| {n} | {login_seconds(result, students, n):.0f} s |" for n in (2, 4, 8, 16)]
        + [
            "",
            (
                f"The second table is CPU time over cores. The same sum for the measured run gives {sum_here:.0f} s, and it took "
                f"{result['seconds']['first_result']['max']:.0f} s, simulated browsers included."
            ),
        ]
    )


def many_machines(result, students=300):
    sizes = kubernetes(result, students)
    return [
        "",
        f"### A class of {students} on Kubernetes (untested)",
        "",
        (
            f"One student's pod is guaranteed {sizes['guarantee_mib']} MiB (server and this chapter's kernel, rounded up) and may "
            f"take {sizes['limit_gib']} GiB (two chapters with the real model). A node of {NODE_GIB} GiB and {NODE_CORES} cores "
            f"then holds {sizes['students_a_node']} students, {students} need {sizes['nodes']} such nodes, and all of them "
            f"logging in at once have a first result after {sizes['login_seconds']:.0f} s at the earliest. Nodes that must first "
            f"be started, or must first pull the image, add minutes: hence the placeholders and the pre-puller."
        ),
        "",
        "```yaml",
        "# values.yaml for the Zero to JupyterHub chart. Untested: no cluster was within reach.",
        "singleuser:",
        "  image: {name: REGISTRY/modern-transformer-block, tag: TAG}   # built as below",
        "  cmd: [python, -m, book.classroom.server]",
        f"  memory: {{guarantee: {sizes['guarantee_mib']}M, limit: {sizes['limit_gib']}G}}",
        f"  cpu: {{guarantee: {sizes['cpu_guarantee']}, limit: 2}}",
        f"  storage: {{capacity: {sizes['storage_gib']}Gi}}   # four times what the test's students wrote, at least 1",
        "  startTimeout: 600",
        "  defaultUrl: /lab/tree/work",
        "  extraEnv: {OMP_NUM_THREADS: '1', MKL_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1',",
        "             MPLCONFIGDIR: /srv/book/build/matplotlib}",
        "  lifecycleHooks:   # every start: what is not there yet is copied, nothing is overwritten",
        "    postStart:",
        "      exec: {command: [python, -m, book.classroom.handout, /srv/book/build/student, /home/jovyan/work]}",
        "hub:",
        "  concurrentSpawnLimit: 64",
        "prePuller:",
        "  hook: {enabled: true}",
        "  continuous: {enabled: true}",
        "scheduling:",
        "  userScheduler: {enabled: true}   # fills nodes one after the other",
        f"  userPlaceholder: {{enabled: true, replicas: {sizes['students_a_node']}}}   # one node ahead of the class",
        "cull: {enabled: true, timeout: 7200, every: 300}",
        "```",
    ]


def block(result):
    lines = measured(result) + one_machine(result) + many_machines(result)
    return "\n".join([BEGIN, *lines, END])


def with_block(text, result):
    """The page with its written part brought up to date. Raises: ValueError if the two marks are not there once each."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise ValueError(f"{PAGE.name}: expected one {BEGIN!r} and, after it, one {END!r}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + block(result) + after


def update():
    """Rewrite the page's figures if the result is one of a good run (a failed run has no figures to plan with)."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    if not result["seconds"]["chapter"] or not result["crash"] or "failure" in result["crash"]:
        print(
            f"{PAGE.name} left as it is: no student finished, or the killed server's student did not come back"
        )
        return False
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    print(f"brought up to date: {PAGE}")
    return True


if __name__ == "__main__":
    sys.exit(0 if update() else 1)
