"""What is broken is left out and said; what is whole around it is kept, by both engines alike."""

import itertools
import json
import tracemalloc

import pytest

from tests.parsers.kineto.written_events import correlations, event, trace

WHOLE = {  # nothing is lost, and nothing need be said
    "byte order mark": b"\xef\xbb\xbf" + trace(event(1), event(3)),
    "indented": json.dumps(json.loads(trace(event(1), event(3))), indent=2).encode(),
    "sorted keys": json.dumps(json.loads(trace(event(1), event(3))), sort_keys=True).encode(),
    "bare list": b"[" + event(1) + b",\n" + event(3) + b"]",
    "trailing comma": trace(event(1), event(3), after=b',],"x":1}'),
    "missing comma": trace(event(1) + b"\n" + event(3)),
    "bare NaN": trace(event(1), b'{"ph":"X","name":"b","args":{"warps per SM":NaN}}', event(3)),
    "bare inf": trace(event(1), b'{"ph":"X","name":"b","args":{"blocks per SM":inf}}', event(3)),
    "bare -nan": trace(event(1), b'{"ph":"X","name":"b","args":{"blocks per SM":-nan}}', event(3)),
    "control characters": trace(event(1), b'{"ph":"X","name":"a\nb\tc\x01"}', event(3)),
    "invalid UTF-8": trace(event(1), b'{"ph":"X","name":"a\xff\xc3"}', event(3)),
    "stray backslashes": trace(event(1), b'{"ph":"X","name":"C:\\Users\\q\\new"}', event(3)),
    "comma after the last member": trace(event(1), b'{"ph":"X","args":{"bytes":5,}}', event(3)),
    "the word in a header": trace(
        event(1), event(3), before=b'"a":{"traceEvents":[{"ph":"X"}]},"b":"\\"traceEvents\\":[",'
    ),
    "header before and after": trace(event(1), event(3), before=b'"schemaVersion":1,'),
    "200,000 deep": trace(
        event(1), b'{"ph":"X","q":' + b"[" * 200000 + b"]" * 200000 + b"}", event(3)
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_lost(name, read):
    raw = read(WHOLE[name])
    assert correlations(raw) == [1, 3]
    assert not raw.issues
    assert not raw.truncated


BROKEN = {  # one event is lost, and said
    "unescaped quotes": b'{"ph":"X","name":"say "hi" now","ts":2.5}',
    "missing value": b'{"ph":"X","ts":1,"args":{"correlation": , "stream":7}}',
    "missing colon": b'{"ph" "X","ts":1}',
    "not an object": b"null",
    "a string too long by its quote": b'{"ph":"X","name":"a,"ts":1}',
    "a bracket too many": b'{"ph":"X","args":{"grid":[1]]}}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_event_is_lost(name, read):
    text = trace(event(1), BROKEN[name], event(3), event(4))
    raw = read(text)
    assert correlations(raw) == [1, 3, 4]
    assert raw.header == {"x": 1}
    assert not raw.truncated
    [issue] = raw.issues
    assert issue.kind == "broken_event"
    assert issue.row == 1
    start = text.index(BROKEN[name])
    assert start <= issue.offset <= start + len(BROKEN[name])


def test_an_event_without_end_costs_no_other(read):
    raw = read(trace(event(1), b'{"ph":"X","args":{"Input Dims":[[}}', event(3)))
    assert correlations(raw) == [1, 3]
    assert [issue.kind for issue in raw.issues][:1] == ["broken_event"]


def test_whole_events_before_a_cut_are_kept(read):
    text = trace(event(1), event(2))
    ends = [text.index(event(n)) + len(event(n)) for n in (1, 2)]
    for cut in range(1, len(text)):
        raw = read(text[:cut])
        assert raw.truncated
        assert raw.rows == sum(end <= cut for end in ends)
        assert set(raw.issue_counts) == {"truncated"}


def test_a_broken_header_entry_costs_only_itself(read):
    before = b'"WARNING":["say "hi" now, [x"],"rank":7,'
    after = b'],"baseTimeNanoseconds":5,"ERROR":"a "b" c","traceName":"t"}'
    raw = read(trace(event(1), before=before, after=after))
    assert correlations(raw) == [1]
    assert raw.header["rank"] == 7
    assert raw.header["baseTimeNanoseconds"] == 5
    assert raw.header["traceName"] == "t"
    assert set(raw.issue_counts) == {"broken_header"}


@pytest.mark.parametrize("torn", [b"{", b"{{", b'{"ph":"X",', b'{"args":{', b"{}{", b'{"ph"'])
def test_an_event_behind_torn_ones_is_read(torn, read):
    raw = read(trace(event(1), torn, event(2), event(3)))
    assert correlations(raw) == [1, 2, 3]
    assert raw.issue_counts["broken_event"] == 1


@pytest.mark.parametrize("blanks", [1, 63, 64, 65, 300, 2000])
@pytest.mark.parametrize("size", [1, 64, 65, 256, 1 << 18])
def test_white_space_between_pieces_costs_no_event_after_damage(truth, read, blanks, size):
    text = trace(event(1), b'{"ph":"X","name"}', b" " * blanks + event(2), event(3))
    raw = read(truth.Pieces(text, lambda: size))
    assert correlations(raw) == [1, 2, 3]
    assert raw.issue_counts == {"broken_event": 1}


def test_a_document_may_be_cut_anywhere(truth, read):
    """After damage too: in two pieces it is what it is in one."""
    text = trace(event(1), b'{"ph":{"name"}', b" " * 70 + event(2), b"}{", event(3), b'{"ph" 1}')
    expected = read(text)
    for cut in range(1, len(text)):
        sizes = iter([cut])
        raw = read(truth.Pieces(text, lambda sizes=sizes: next(sizes, len(text))))
        assert truth.cells(raw) == truth.cells(expected)
        assert raw.issue_counts == expected.issue_counts


@pytest.mark.parametrize("key", ["with_stack", "_", "2nd key", "rank"])
def test_after_a_broken_header_entry_any_usual_key_is_read(key, read):
    """The rest of the broken one looks like keys too, but no colon follows."""
    before = b'"broken":"say "hi", "a_b", x","%b":7,"z":8,' % key.encode()
    raw = read(trace(event(1), before=before))
    assert correlations(raw) == [1]
    assert {name: raw.header[name] for name in (key, "z", "x")} == {key: 7, "z": 8, "x": 1}
    assert raw.issue_counts == {"broken_header": 1}


@pytest.mark.parametrize("text", [b"", b"   ", b"\x00\x01garbage", b"<html></html>", b"ph"])
def test_what_is_no_json_is_no_trace(text, read):
    raw = read(text)
    assert raw.rows == 0
    assert not raw.events_seen
    assert raw.truncated


@pytest.mark.parametrize("text", [b'{"schema":1,"nodes":[1]}', b'{"traceEvents":null}', b"{}"])
def test_json_without_events(text, read):
    raw = read(text)
    assert raw.rows == 0
    assert not raw.events_seen
    assert not raw.truncated
    assert raw.header == json.loads(text)


def test_no_events_is_not_the_same_as_an_empty_list(read):
    raw = read(b'{"traceEvents":[],"x":1}')
    assert raw.events_seen
    assert raw.rows == 0
    assert raw.header == {"x": 1}


@pytest.mark.parametrize("first", [[], [event(1)]])
def test_a_second_list_of_events_is_read_and_said(first, read):
    second = b'],"traceEvents":[' + event(3) + b',{"ph":},' + event(4) + b'],"x":1}'
    raw = read(trace(*first, after=second))
    assert correlations(raw) == [1] * len(first) + [3, 4]
    assert raw.header == {"x": 1}
    assert set(raw.issue_counts) == {"broken_header", "broken_event"}


def test_mistyped_values_are_null_and_counted(read):
    odd = b'{"ph":"X","ts":"soon","args":{"stream":{"a":1},"correlation":true}}'
    raw = read(trace(event(1), *[odd] * 1500))
    assert raw.rows == 1501
    assert raw.dense("ts").to_pylist() == [1500] + [None] * 1500
    assert not raw.has("stream")
    assert raw.issue_counts["mistyped_value"] == 4500
    assert len(raw.issues) == 1001  # the last one stands for the others
    texts = {issue.text for issue in read(trace(event(1), odd)).issues}
    assert texts == {'ts: "soon"', 'stream: {"a":1}', "correlation: true"}


def test_the_last_of_a_repeated_key_counts(read):
    repeated = (
        b'{"ph":"X","ts":1,"ts":2,"pid":3,"pid":null,"args":{"stream":5,"bytes":1},'
        b'"args":{"stream":7,"stream":8}}'
    )
    raw = read(trace(repeated))
    assert raw.values("ts").tolist() == [2000]
    assert raw.values("stream").tolist() == [8]
    assert not raw.has("pid")
    assert not raw.has("bytes")


def test_numbers_in_other_dress(read):
    args = (
        b'{"stream":"0x1F","device":"7","correlation":12.0,"queued":1e3,'
        b'"memory bandwidth (GB/s)":"N/A","est. achieved occupancy %":"nan"}'
    )
    raw = read(trace(b'{"ph":"X","ts":0.0005,"dur":"1.0015","args":' + args + b"}"))
    assert raw.values("stream").tolist() == [31]
    assert raw.values("device").tolist() == [7]
    assert raw.values("correlation").tolist() == [12]
    assert raw.values("queued").tolist() == [1000]
    assert raw.values("ts").tolist() == [0]  # half a nanosecond goes to the even one
    assert raw.values("dur").tolist() == [1002]
    assert not raw.has("mem_bw")
    assert not raw.issues


def test_counters_and_metadata_keep_all_their_arguments(read):
    counter = b'{"ph":"C","name":"GPU 0","args":{"SM %":12.5, "bytes": 3}}'
    names = b'{"args":{"name":"python","labels":"CPU"},"ph":"M","name":"process_name"}'
    raw = read(trace(event(1), counter, names))
    assert raw.column_rows("args_rest").tolist() == [1, 2]
    assert raw.values("args_rest").to_pylist() == [
        '{"SM %":12.5,"bytes":3}',
        '{"name":"python","labels":"CPU"}',
    ]
    assert raw.values("meta_name").to_pylist() == ["python"]
    assert raw.values("meta_labels").to_pylist() == ["CPU"]


def test_unread_arguments_are_kept_on_request(read):
    text = trace(b'{"ph":"X","args":{"stream":1,"new key":[1, 2], "other":"x y"}}', event(2))
    assert not read(text).has("args_rest")
    raw = read(text, rest=True)
    assert raw.values("args_rest").to_pylist() == ['{"new key":[1,2],"other":"x y"}']
    assert raw.column_rows("args_rest").tolist() == [0]


def test_spaces_without_end_are_not_kept(truth, read):
    """200 MB of white space between two events, in a memory that stays small."""
    first, last = trace(event(1), event(2)).split(b",{")
    spaces = itertools.repeat(b" " * (1 << 18), 800)
    tracemalloc.start()
    raw = read(truth.Parts(itertools.chain([first], spaces, [b",{" + last])))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert correlations(raw) == [1, 2]
    assert most < 20 << 20


def test_progress_is_told_the_bytes(read):
    told: list[int] = []
    text = trace(*map(event, range(9999)))
    read(text, progress=told.append)
    assert told[-1] == len(text)
    assert told == sorted(told)


def test_mistyped_values_of_an_event_that_breaks_are_not_counted(read):
    odd = b'{"ph":"X","ts":"soon"}'
    broken = b'{"ph":"X","ts":"soon" "dur":1}'
    raw = read(trace(*[odd] * 1100, broken, event(1)))
    assert raw.issue_counts == {"mistyped_value": 1100, "broken_event": 1}


@pytest.mark.parametrize(
    ("members", "texts"),
    [
        (b'"ts":"soon","ts":"later"', ['ts: "later"']),
        (b'"ts":"soon","ts":5', []),
        (b'"ts":5,"ts":"later"', ['ts: "later"']),
        (b'"ts":"soon","ts":null', []),
        (b'"args":{"stream":"x","bytes":"y"},"args":{"bytes":"z"}', ['bytes: "z"']),
        (b'"args":{"stream":"x","stream":"y","stream":7}', []),
        (b'"name":a","name":"b"', []),
    ],
)
def test_of_a_repeated_key_only_the_last_value_may_be_mistyped(members, texts, both):
    text = trace(event(1), b'{"ph":"X",%s}' % members, b'{"ph":"X","dur":"no"}')
    for raw in (read(text) for read in both):
        assert [issue.text for issue in raw.issues] == [*texts, 'dur: "no"']
        assert raw.issue_counts == {"mistyped_value": len(texts) + 1}


def test_an_opening_quote_that_is_missing_is_said(read):
    raw = read(trace(event(1), b'{"ph":"X","name":gemm","pid":1,"args":{"stream":7}}', event(3)))
    assert raw.dense("name").to_pylist() == ["a", None, "a"]
    assert [issue.text for issue in raw.issues] == ['name: gemm"']
    assert raw.column_rows("correlation").tolist() == [0, 2]


@pytest.mark.parametrize("more", [trace(event(2)), b"x", b"]", b",", b"\0 {"])
def test_data_behind_the_end_is_left_out_and_said(more, truth, read):
    text = trace(event(1), event(3))
    for blanks in (b"", b"\n", b" " * 3000):
        parts = [part for part in (text, blanks, more) if part]  # an empty one would be the end
        for pieces in (truth.Pieces(b"".join(parts)), truth.Parts(parts)):
            raw = read(pieces)
            assert correlations(raw) == [1, 3]
            assert raw.header == {"x": 1}
            [issue] = raw.issues
            assert issue.kind == "data_after_end"
            assert issue.offset == len(text + blanks) + more.index(more.strip(b"\0 "))
    assert not read(text + b"\0" * 700_000).issues  # padding


@pytest.mark.parametrize("blanks", [1, 60, 65, 300, 2000, 250_000])
def test_blanks_over_a_border_between_pieces_cost_no_event(blanks, truth, read):
    """After damage an event is looked for behind a border, which may be long gone."""
    space = b" " * (blanks - 1) + b"\0"
    broken = b'{"ph":"X","name":"a,"ts":1}'
    events = (event(1), broken + b"," + space + event(3).replace(b"{", b"{" + space, 1), event(4))
    text = trace(*events)
    start = text.index(b"," + space) + 1
    for cut in (start, start + 1, start + blanks // 2, start + blanks, start + blanks + 3):
        raw = read(
            truth.Parts([text[:cut], text[cut : cut + blanks + 3], text[cut + blanks + 3 :]])
        )
        assert correlations(raw) == [1, 3, 4]
        assert raw.issue_counts == {"broken_event": 1}
