"""Settings: what is read, from where, in which order, and how each mistake is told."""

import socket
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from themis_arbiter.core.settings import QueueRule, Settings, ShareBy
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.server.config import BY_KEY, DIRECT, DURATIONS, LATER, SETTINGS, ConfigError, ServerConfig, load_config
from themis_arbiter.server.values import Address, StoreAddress

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "arbiter.toml"


def load(file: Path, text: str, environment: Mapping[str, str] | None = None, **flags: object) -> ServerConfig:
    file.write_text(text, encoding="utf-8")
    return load_config(file, environment, flags)


def problems(file: Path, text: str, environment: Mapping[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, text, environment, **flags)
    return [line.replace(str(file), "FILE") for line in caught.value.problems]


def test_defaults_are_the_cores_and_the_contracts() -> None:
    config = load_config()
    # Live, apps have owners; a trace's app is a fair share of its own unless --shares says otherwise.
    assert config.settings == Settings(share_by=ShareBy.USER)
    assert config.store == StoreAddress("sqlite", Path.cwd() / "themis.db")
    assert config.grpc_address == Address("127.0.0.1", 7650)
    assert config.http_address == Address("127.0.0.1", 7651)
    assert config.journal is None
    assert config.notes == ()


def test_every_setting_can_be_said_in_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("model,slot,machine,rack,cluster\nvgg,1,1.2,1.5,2\n", encoding="utf-8")
    (tmp_path / "zk.secret").write_text("themis:s3cret:with colon\n", encoding="utf-8")
    (tmp_path / "zk.secret").chmod(0o600)
    config = load(
        file,
        """
        lease = "20 s"
        notice = 3
        debounce = "250 ms"
        rho_floor = "0.5 min"
        restart_cost = 1.5
        recall = false
        tick = "2 s"
        no_show = 5
        min_runtime = 6
        on_lease_end = "never"
        share_by = "app"
        recovery_grace = 7
        observe_only = true
        gang_wait = "4s"
        policy = "paper"
        fairness_knob = 0.5
        urgent_above = 1.2
        starving_above = 3
        large_gang = 0.25
        owed_leases = 2
        admission_max_rho = 2
        admission_queue_max = 9
        payments = false
        models = "m.csv"
        store = "memory:"
        grpc_address = "127.0.0.2:0"
        http_address = "[::1]:9000"
        [journal]
        folder = "journals"
        bytes_max = 100000
        files_max = 3
        [log]
        format = "json"
        level = "debug"
        [bridge]
        gateway_dir = "/run/gateway"
        arbiter = "arbiter.example:7650, other.example:7650"
        [zookeeper]
        session = "4 s"
        credentials = "zk.secret"
        """,
    )
    s = config.settings
    assert (s.lease_ms, s.notice_ms, s.debounce_ms, s.rho_floor_ms) == (20_000, 3_000, 250, 30_000)
    assert (s.restart_cost_ms, s.tick_ms, s.gang_wait_ms) == (1_500, 2_000, 4_000)
    assert (s.policy, s.fairness_knob, s.payments) == ("paper", 0.5, False)
    assert (s.urgent_above, s.starving_above) == (1.2, 3.0)
    assert (s.large_gang, s.owed_leases) == (0.25, 2.0)
    assert (s.admission_max_rho, s.admission_queue_max) == (2.0, 9)
    names = {f.name for f in fields(s) if f.name.removesuffix("_ms") in BY_KEY}
    assert len(names) == len(DURATIONS) + len(DIRECT) + 2  # with on_lease_end and share_by
    untold = load_config().settings
    assert [n for n in sorted(names) if getattr(s, n) == getattr(untold, n)] == [], "settings that reach nobody"
    assert s.slowdowns.by_model == {"vgg": (1.0, 1.2, 1.5, 2.0)}
    assert config.store == StoreAddress("memory")
    assert str(config.http_address) == "[::1]:9000"
    assert config.journal is not None
    assert config.journal.folder == tmp_path / "journals"
    assert (config.journal.bytes_max, config.journal.files_max) == (100_000, 3)
    assert (config.log_format, config.log_level) == ("json", "debug")
    assert config.bridge.gateway_dir == Path("/run/gateway")
    assert [str(one) for one in config.bridge.arbiters] == ["arbiter.example:7650", "other.example:7650"]
    who = config.zookeeper.credentials
    assert who is not None
    assert (config.zookeeper.session_ms, who.user, who.password) == (4_000, "themis", "s3cret:with colon")
    assert "s3cret" not in repr(config)
    assert {r.source for r in config.resolved} == {str(file)}


def test_environment_wins_over_file_and_flags_over_both(file: Path) -> None:
    environment = {"THEMIS_LEASE": "200 s", "THEMIS_NOTICE": "20 s", "THEMIS_LOG_LEVEL": "error"}
    config = load(file, 'lease = 100\nnotice = 10\ndebounce = "7 s"', environment, lease="400 s")
    s = config.settings
    assert (s.lease_ms, s.notice_ms, s.debounce_ms) == (400_000, 20_000, 7_000)
    sources = {r.key: r.source for r in config.resolved}
    assert sources["lease"] == "--lease"
    assert sources["notice"] == "THEMIS_NOTICE"
    assert sources["debounce"] == str(file)
    assert sources["rho_floor"] == "default"
    assert sources["log.level"] == "THEMIS_LOG_LEVEL"


def test_paths_in_a_file_start_at_the_file_and_others_at_the_working_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    text = 'store = "sqlite:state/leases.db"'
    assert load(file, text).store.path == file.parent / "state/leases.db"
    assert load(file, text, {"THEMIS_STORE": "sqlite:leases.db"}).store.path == Path("/leases.db")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('lease = "5 moons"', "FILE: lease: '5 moons': unknown unit 'moons'; units are ms, s, min, h, d"),
        ("lease = true", "FILE: lease: True is not a duration; write a number and a unit"),
        ("lease = nan", "FILE: lease: nan is not a duration; it must be finite and not negative"),
        ("lease = -1", "FILE: lease: -1 is not a duration; it must be finite and not negative"),
        ("lease = 0", "FILE: lease: 0 s is not above 0 and at most 168 h"),
        (f"lease = {'9' * 4000}", "is longer than a year"),
        ('lease = "1e999999999"', "is longer than a year"),
        ('lease = "0.5 ms"', "is not whole milliseconds"),
        ('lease = ""', "FILE: lease: '' is not a duration"),
        ("lease = 90", "FILE: lease: 90 s is not longer than notice 60 s + restart_cost 40 s"),
        ('policy = "teamis"', "FILE: policy: 'teamis' is not one of the values there are; write one of: "),
        ("fairness_knob = 1.1", "FILE: fairness_knob: 1.1 is not a number from 0 to 1"),
        ("urgent_above = 0", "FILE: urgent_above: 0 is not a number above 0 and up to 1e+09; write one, such as 1.5"),
        ("large_gang = 0", "FILE: large_gang: 0 is not a number above 0 and up to 2; such as 0.5; above 1 no gang"),
        ("owed_leases = -1", "FILE: owed_leases: -1 is not a number from 0 to 1e+06; write one, such as 1"),
        ("starving_above = inf", "FILE: starving_above: inf is not a number above 0 and up to 1e+09"),
        (
            "starving_above = 1",
            "FILE: starving_above: 1 is below urgent_above 1.02, but who starves is urgent; write a larger one",
        ),
        ("urgent_above = 2", "starving_above: 1.3 is below urgent_above 2"),
        ("admission_max_rho = 0.5", "FILE: admission_max_rho: 0.5 is neither 0 (off) nor a number from 1 to 1e+06; write one"),
        ("admission_max_rho = nan", "FILE: admission_max_rho: nan is neither 0 (off) nor a number"),
        ('admission_max_rho = "much"', "FILE: admission_max_rho: 'much' is neither 0 (off) nor a number"),
        ("admission_queue_max = 0", "FILE: admission_queue_max: 0 is not a whole number from 1 to 10000"),
        ('payments = "maybe"', "FILE: payments: 'maybe' is neither true nor false"),
        ('store = "zookeeper:/themis"', "does not name 1 to 16 servers"),
        ('store = "zookeeper:zk1:2181"', "does not name a path of the arbiters' own"),
        ('store = "zookeeper:zk1:2181/"', "does not name a path of the arbiters' own"),
        ('store = "zookeeper:zk1:2181/a b"', "names of letters, digits, `.`, `_` and `-`"),
        ('store = "zookeeper:zk1:2181/a/../b"', "does not name a path of the arbiters' own"),
        ('store = "zookeeper:zk1:2181/zookeeper/a"', "/zookeeper is ZooKeeper's own"),
        (
            'store = "zookeeper:zk1:2181/themis/election"',
            "arbiters call nodes of their own 'election'; name the path otherwise",
        ),
        ('store = "zookeeper:zk1:2181/themis/book-1/a"', "arbiters call nodes of their own 'book-1'"),
        ('store = "zookeeper:zk1:2181,0.0.0.0:2181/a"', "names an address to listen at, not a server's"),
        ('[bridge]\narbiter = "a:1,b:0"', "nobody can be called at b:0: it has port 0; write where the arbiter says"),
        (
            '[bridge]\narbiter = "[::]:7650"',
            "nobody can be called at [::]:7650: it is one to listen at",
        ),
        ('store = "zookeeper:zk1:2181,zk1:2181/a"', "names a server twice"),
        ('store = "zookeeper:zk1/themis"', "'zk1' is not HOST:PORT"),
        ('[zookeeper]\nsession = "10 ms"', "zookeeper.session: 10 ms is not from 1 s to 5 min"),
        ('[zookeeper]\ncredentials = "nowhere"', "cannot be read: No such file or directory; name a file with USER:PASSWORD"),
        ('store = "sqlite:"', "FILE: store: 'sqlite:' is not a store"),
        ('store = "leases.db"', "FILE: store: 'leases.db' is not a store"),
        ('store = "sqlite:a\\u0000b"', "holds control characters"),
        ('grpc_address = "7650"', "FILE: grpc_address: '7650' is not HOST:PORT; write one, such as 127.0.0.1:7650"),
        ('grpc_address = "h:70000"', "is not HOST:PORT"),
        ('http_address = "127.0.0.1:7650"', "FILE: http_address: 127.0.0.1:7650 is grpc_address too"),
        ('models = "missing.csv"', "missing.csv: cannot be read: No such file or directory"),
        ("leese = 3", "FILE: leese: there is no such setting; did you mean lease?"),
        ("[jrnl]\nfolder = 'x'", "FILE: jrnl: there is no such setting"),
        ("[journal]\nfile_max = 2", "FILE: journal.file_max: there is no such setting; did you mean files_max in [journal]?"),
        ("gateway_dir = 'x'", "FILE: gateway_dir: there is no such setting; did you mean gateway_dir in [bridge]?"),
        ("[journal]\nfiles_max = 0", "FILE: journal.files_max: 0 is not a whole number from 1 to 1000"),
        ("journal = 'x'", "FILE: journal: is a section, not a value; write [journal]"),
        ("fallback = 'closed'", "FILE: fallback: is the ResourceManager's: set themis.fallback in its yarn-site.xml"),
        (
            "fallback_after = 9",
            "FILE: fallback_after: is the ResourceManager's: set themis.fallback.after-ms in its yarn-site.xml",
        ),
        ("tls = false", "FILE: tls: is not in this version of the arbiter; remove it"),
        (
            "on_lease_end = 'stop'",
            "FILE: on_lease_end: 'stop' is not one of the values there are; write one of: checkpoint, re",
        ),
        ("gpu_types = 3", "FILE: gpu_types: is a section, not a value; write lines like v100 = "),
        ("[gpu_types]\nv100 = 3", "FILE: gpu_types.v100: is a list of names of nodes"),
        ("[gpu_types]\nv100 = []", "FILE: gpu_types.v100: is a list of names of nodes"),
        ("[gpu_types]\nv100 = ['a', '']", "FILE: gpu_types.v100: is a list of names of nodes"),
        ("[gpu_types]\n'v 100' = ['a']", "FILE: gpu_types.v 100: 'v 100' is no name of a type"),
        ("[gpu_types]\nv100 = ['a']\nk80 = ['A']", "FILE: gpu_types.k80: 'A' is of type v100 already; name it once"),
        ("[gpu_types]\nnone = ['a']", "FILE: gpu_types.none: no type may be called 'none'"),
        ("[gpu_types]\nv100 = ['a']\nV100 = ['b']", "FILE: gpu_types.V100: differs from 'v100' in case only"),
        (
            "[gpu_types]\nv100 = ['a:8041']\nk80 = ['A']",
            "FILE: gpu_types.v100: 'a:8041' is of type k80 too, as 'a' without a port; name it once",
        ),
        ("queues = 3", "FILE: queues: holds a table for each queue; write [queues.NAME] and its settings below"),
        ("[queues]\nq = 3", "FILE: queues.q: is a table, not a value; write [queues.q] and its settings below"),
        ("[queues.q]\non_lease_end = 'x'", "FILE: queues.q.on_lease_end: 'x' is not one of the values there are"),
        ("[queues.q]\nnever_gpus_max = -1", "FILE: queues.q.never_gpus_max: -1 is not a whole number from 0 to 1000000"),
        (
            "[queues.q]\nnever_gpu_max = 1",
            "FILE: queues.q.never_gpu_max: there is no such setting; did you mean never_gpus_max?",
        ),
        ("[queues.q]\nweight = 0", "FILE: queues.q.weight: 0 is not a number from 1e-06 to 1e+06; write one, such as 2"),
        ("[users.u]\nweight = nan", "FILE: users.u.weight: nan is not a number from 1e-06 to 1e+06; write one, such as 2"),
        ("users = 3", "FILE: users: holds a table for each user; write [users.NAME] and its settings below"),
        ("[users.u]\nshare = 1", "FILE: users.u.share: there is no such setting; there are weight"),
        ("share_by = 'group'", "FILE: share_by: 'group' is not one of the values there are; write one of: app, user, qu"),
        ("[queues.root.a]\nnever_gpus_max = 1", "FILE: queues.root.a: there is no such setting; a queue's name with a dot is"),
        ('[queues."a\\nb"]\n', "FILE: queues.'a\\nb': is no queue's name"),
        ("lease = 3 s", "FILE: not TOML: "),
        ('"a\\nb" = 3', "FILE: a\\nb: there is no such setting"),
    ],
)
def test_mistake_is_told_with_its_place_and_what_to_do(file: Path, text: str, problem: str) -> None:
    found = problems(file, text)
    assert len(found) == 1
    assert problem in found[0]
    assert "\n" not in found[0]


def test_two_node_managers_of_a_host_may_have_two_types(file: Path) -> None:
    file.write_text("[gpu_types]\nv100 = ['a:1', 'b', 'b:1', 'c:*']\nk80 = ['a:2', 'c']\n")
    types = load_config(file).gpu_types
    assert [types.type_of(node) for node in ("a:1", "a:2", "a:3", "b:1", "b:2")] == ["v100", "k80", "", "v100", "v100"]


def test_types_of_nodes_are_read_and_shown(file: Path) -> None:
    file.write_text("[gpu_types]\nV100 = ['GPU-*', 'n1']\nk80 = ['old']\n")
    config = load_config(file)
    assert config.gpu_types.names == (("gpu-*", "v100"), ("n1", "v100"), ("old", "k80"))
    shown = {r.key: r.value for r in config.resolved if r.key.startswith("gpu_types")}
    assert shown == {"gpu_types.v100": "gpu-*,n1", "gpu_types.k80": "old"}


def test_queues_and_kinds(file: Path) -> None:
    text = """
        on_lease_end = "restart"
        min_runtime = "90 s"
        no_show = 7
        recovery_grace = 8
        observe_only = true
        share_by = "queue"

        [queues.research]
        on_lease_end = "never"
        never_gpus_max = 8

        [queues."root.b"]
        never_gpus_max = 0
        weight = 2.5

        [users.alice]
        weight = 3
    """
    config = load(file, text)
    s = config.settings
    assert (s.on_lease_end, s.min_runtime_ms, s.no_show_ms, s.recovery_grace_ms) == (OnLeaseEnd.RESTART, 90_000, 7_000, 8_000)
    assert (s.observe_only, s.share_by) == (True, ShareBy.QUEUE)
    assert s.queues == {
        "research": QueueRule(on_lease_end=OnLeaseEnd.NEVER, never_gpus_max=8),
        "root.b": QueueRule(never_gpus_max=0, weight=2.5),
    }
    assert s.users == {"alice": 3.0}
    shown = {r.key: (r.value, r.source) for r in config.resolved}
    assert shown["queues.research.on_lease_end"] == ("never", str(file))
    assert shown["queues.'root.b'.never_gpus_max"] == ("0", str(file))
    assert shown["queues.'root.b'.weight"] == ("2.5", str(file))
    assert shown["users.alice.weight"] == ("3", str(file))
    assert shown["share_by"] == ("queue", str(file))


def test_too_many_queues_are_one_problem(file: Path) -> None:
    (problem,) = problems(file, "".join(f"[queues.q{k}]\n" for k in range(1_001)))
    assert "more than 1000 queues" in problem


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    found = problems(file, "leese = 1\npayments = 3", {"THEMIS_NOTICE": "x"}, policy="none")
    assert [line.split(":")[0] for line in found] == ["FILE", "THEMIS_NOTICE", "--policy", "FILE"]


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a = '" + b"x" * 2_000_000 + b"'", b"a = " + b"[" * 100_000])
def test_file_that_is_no_settings_is_one_problem(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert len(caught.value.problems) == 1
    assert len(caught.value.problems[0]) < 1_000


@pytest.mark.parametrize("place", ["missing.toml", "."])
def test_file_that_cannot_be_read_is_said_so(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / place)


def test_byte_order_mark_is_accepted(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbflease = 500\n")
    assert load_config(file).settings.lease_ms == 500_000


def test_misspelt_variable_is_noted_and_foreign_ones_are_not() -> None:
    foreign = {"THEMIS_PORT_7650_TCP": "x", "THEMIS_ARBITER": "h:1", "HOME": "/"}
    config = load_config(None, {"THEMIS_LEASSE": "3", **foreign})
    (note,) = config.notes
    assert "THEMIS_LEASSE" in note
    assert "THEMIS_LEASE?" in note


def test_an_arbiter_among_others_that_listens_everywhere_is_told_under_which_name(file: Path) -> None:
    everywhere = 'grpc_address = "0.0.0.0:7650"\n'
    (_, note) = load(file, f'{everywhere}store = "zookeeper:zk1:2181/a"').notes
    assert note.startswith(
        f"{file}: grpc_address: 0.0.0.0:7650 is no address to call, so standbys will say that the leader is at "
    )
    assert f"{socket.gethostname()}:7650" in note
    assert len(load(file, f'{everywhere}store = "memory:"').notes) == 1


def test_weights_of_owners_who_do_not_share_are_noted(file: Path) -> None:
    text = "[users.ann]\nweight = 2\n[queues.q]\nweight = 3\n[users.bob]\nweight = 1\n"
    of_queues = f"{file}: weights of queues have no effect while share_by is {{}}; set it to queue or queue-user"
    of_users = f"{file}: weights of users have no effect while share_by is {{}}; set it to user or queue-user"
    for share_by, notes in (
        ("user", [of_queues]),
        ("queue", [of_users]),
        ("app", [of_queues, of_users]),
        ("queue-user", []),
    ):
        found = load(file, f'share_by = "{share_by}"\n{text}').notes
        assert list(found) == [note.format(share_by) for note in notes]
    assert load(file, "[queues.q]\nnever_gpus_max = 3\n").notes == ()


def test_port_open_to_other_machines_is_noted() -> None:
    (note,) = load_config(None, {"THEMIS_HTTP_ADDRESS": "0.0.0.0:7651"}).notes
    assert "is open to other machines" in note


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("1500 ms", 1_500), ("5min", 300_000), ("1.5", 1_500), ("2 h", 7_200_000), ("1 d", 86_400_000)],
)
def test_durations(written: str, milliseconds: int) -> None:
    assert load_config(None, {"THEMIS_RHO_FLOOR": written}).settings.rho_floor_ms == milliseconds


def test_reference_and_example_name_every_setting() -> None:
    reference = (REPOSITORY / "docs/reference/settings.md").read_text(encoding="utf-8")
    example = REPOSITORY / "deploy/themis.toml.example"
    text = example.read_text(encoding="utf-8")
    for setting in SETTINGS:
        default = "none" if setting.default is None else str(setting.default).lower()
        row = f"| `{setting.key}` | `{setting.variable}` | `{setting.flag}` | {default} | {setting.meaning} |"
        assert row in reference
        shown = f'"{default}"' if isinstance(setting.default, str) else default
        assert f"\n# {setting.key.rpartition('.')[2]} = {'' if setting.default is None else shown}" in text, setting.key
    assert load_config(example).settings == load_config().settings
    assert not LATER & set(BY_KEY)


def test_a_store_in_zookeeper_names_servers_and_a_path(file: Path) -> None:
    store = load(file, 'store = "zookeeper:zk1:2181, [::1]:2182/a/themis"').store
    assert (store.kind, store.hosts, store.chroot) == ("zookeeper", "zk1:2181,[::1]:2182", "/a/themis")
    assert str(store) == "zookeeper:zk1:2181,[::1]:2182/a/themis"


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [("a:b", 0o640, "others can read it"), ("a", 0o600, "does not hold USER:PASSWORD"), (":b", 0o600, "does not hold")],
)
def test_credentials_are_for_their_owner_alone_and_never_shown(file: Path, text: str, mode: int, problem: str) -> None:
    secret = file.parent / "zk.secret"
    secret.write_text(text, encoding="utf-8")
    secret.chmod(mode)
    (line,) = problems(file, '[zookeeper]\ncredentials = "zk.secret"')
    assert problem in line
