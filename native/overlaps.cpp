// What lies beside what at the times of a replay: how long any of several sets of spans is on, and the
// share of each span that another set covers. Spans are named by the nodes where they start and end.
// Their twins in Python are in htk.quantities.graph.overlaps.
#include "longs.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace {

constexpr Py_ssize_t AHEAD = 24;  // rows whose times are fetched into the caches before they are needed

struct Span {
    std::int64_t start, end;
};

// Wraps round where times are too far apart for 64 bits, as NumPy does.
std::int64_t less(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

bool begins_before(const Span& one, const Span& other) { return one.start < other.start; }

// The nodes of some spans, all of them such as there are times for.
struct Nodes {
    Longs start, end;
    bool take(PyObject* starts, PyObject* ends, Py_ssize_t times) {
        if (!start.take(starts, PyBUF_SIMPLE) || !end.take(ends, PyBUF_SIMPLE)) return false;
        if (start.size() != end.size()) {
            PyErr_SetString(PyExc_ValueError, "starts and ends differ in length");
            return false;
        }
        for (const Longs* nodes : {&start, &end})
            for (const std::int64_t *at = nodes->data(), *last = at + nodes->size(); at != last; ++at)
                if (static_cast<std::uint64_t>(*at) >= static_cast<std::uint64_t>(times)) {
                    PyErr_SetString(PyExc_IndexError, "a span of a node that is not there");
                    return false;
                }
        return true;
    }
    Py_ssize_t size() const { return start.size(); }
    // A span. Times lie far apart in memory, and nothing but its row tells where the next ones are.
    Span at(const std::int64_t* time, Py_ssize_t row) const {
        if (row + AHEAD < size()) {
            __builtin_prefetch(time + start.data()[row + AHEAD]);
            __builtin_prefetch(time + end.data()[row + AHEAD]);
        }
        return {time[start.data()[row]], time[end.data()[row]]};
    }
};

// Sort by start what consists of a few rows of spans, one behind the other, each in order: merge
// neighbouring rows until one is left.
void put_in_order(std::vector<Span>& spans) {
    std::vector<std::size_t> bounds{0};
    for (std::size_t k = 1; k < spans.size(); ++k)
        if (begins_before(spans[k], spans[k - 1])) bounds.push_back(k);
    bounds.push_back(spans.size());
    std::vector<Span> other(bounds.size() > 2 ? spans.size() : 0);
    while (bounds.size() > 2) {
        std::vector<std::size_t> fewer{0};
        for (std::size_t k = 0; k + 1 < bounds.size(); k += 2) {
            const std::size_t middle = bounds[k + 1], last = k + 2 < bounds.size() ? bounds[k + 2] : middle;
            const auto at = [&](std::size_t place) { return spans.begin() + static_cast<std::ptrdiff_t>(place); };
            std::merge(at(bounds[k]), at(middle), at(middle), at(last),
                       other.begin() + static_cast<std::ptrdiff_t>(bounds[k]), begins_before);
            fewer.push_back(last);
        }
        spans.swap(other);
        bounds.swap(fewer);
    }
}

// Join what overlaps or touches of spans that are in order.
void join(std::vector<Span>& spans) {
    std::size_t last = 0;
    for (std::size_t k = 1; k < spans.size(); ++k)
        if (spans[k].start > spans[last].end)
            spans[++last] = spans[k];
        else
            spans[last].end = std::max(spans[last].end, spans[k].end);
    if (!spans.empty()) spans.resize(last + 1);
}

// Disjoint spans in order that cover the same points; empty ones cover none.
std::vector<Span> joined(const std::int64_t* time, const Nodes& nodes) {
    const Py_ssize_t many = nodes.size();
    std::vector<Span> spans;
    spans.reserve(static_cast<std::size_t>(many));
    for (Py_ssize_t k = 0; k < many; ++k) {
        const Span span = nodes.at(time, k);
        if (span.end > span.start) spans.push_back(span);
    }
    put_in_order(spans);
    join(spans);
    return spans;
}

// How much of disjoint, ordered spans lies before a time; quick where times are asked for in order.
class Before {
public:
    explicit Before(const std::vector<Span>& spans) : spans_(spans), length_(1, 0) {
        length_.reserve(spans.size() + 1);
        std::uint64_t total = 0;
        for (const Span& span : spans) {
            total += static_cast<std::uint64_t>(less(span.end, span.start));
            length_.push_back(static_cast<std::int64_t>(total));
        }
    }
    std::int64_t operator()(std::int64_t time) {
        const std::size_t many = spans_.size();
        const auto begins_by = [&](std::size_t place) { return place < many && spans_[place].start <= time; };
        if (begun_ > 0 && !begins_by(begun_ - 1)) begun_ = search(0, begun_, time);
        for (int k = 0; k < NEAR && begins_by(begun_); ++k) ++begun_;
        if (begins_by(begun_)) begun_ = search(begun_, many, time);
        const std::int64_t left = begun_ ? std::max<std::int64_t>(less(spans_[begun_ - 1].end, time), 0) : 0;
        return less(length_[begun_], left);
    }

private:
    static constexpr int NEAR = 8;
    std::size_t search(std::size_t low, std::size_t high, std::int64_t time) const {
        const auto later = [](std::int64_t at, const Span& span) { return at < span.start; };
        const Span* all = spans_.data();
        return static_cast<std::size_t>(std::upper_bound(all + low, all + high, time, later) - all);
    }
    const std::vector<Span>& spans_;
    std::vector<std::int64_t> length_;  // of the first spans together
    std::size_t begun_ = 0;  // at the time that was asked for last
};

// Work without the interpreter's lock; false if memory ran out.
template <typename Work>
bool beside_other_threads(const Work& work) {
    bool is_done = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        work();
    } catch (const std::bad_alloc&) {
        is_done = false;
    }
    Py_END_ALLOW_THREADS;
    return is_done;
}

// How long the first of some sets is on, any of the first two, any of the three.
void add_up(const std::int64_t* time, const Nodes (&sets)[3], std::uint64_t (&total)[3]) {
    std::vector<Span> any;
    for (int k = 0; k < 3; ++k) {
        const std::vector<Span> own = joined(time, sets[k]);
        std::vector<Span> both(any.size() + own.size());
        std::merge(any.begin(), any.end(), own.begin(), own.end(), both.begin(), begins_before);
        join(both);
        any.swap(both);
        for (const Span& span : any) total[k] += static_cast<std::uint64_t>(less(span.end, span.start));
    }
}

// The share of each span that others cover.
void cover(const std::int64_t* time, const Nodes& own, const Nodes& others, double* share) {
    const std::vector<Span> spans = joined(time, others);
    Before before_start(spans), before_end(spans);
    for (Py_ssize_t k = 0, many = own.size(); k < many; ++k) {
        const Span span = own.at(time, k);
        const std::int64_t covered = less(before_end(span.end), before_start(span.start));
        share[k] = static_cast<double>(covered) /
                   static_cast<double>(std::max<std::int64_t>(less(span.end, span.start), 1));
    }
}

// time, then starts and ends of each set: how long the first is on, any of the first two, and so on.
PyObject* busy(PyObject*, PyObject* args) {
    PyObject *of_time, *of_nodes[6];
    if (!PyArg_ParseTuple(args, "OOOOOOO", &of_time, &of_nodes[0], &of_nodes[1], &of_nodes[2], &of_nodes[3],
                          &of_nodes[4], &of_nodes[5]))
        return nullptr;
    Longs time;
    Nodes sets[3];
    if (!time.take(of_time, PyBUF_SIMPLE)) return nullptr;
    for (int k = 0; k < 3; ++k)
        if (!sets[k].take(of_nodes[2 * k], of_nodes[2 * k + 1], time.size())) return nullptr;
    std::uint64_t total[3]{};
    const bool is_done = beside_other_threads([&] { add_up(time.data(), sets, total); });
    if (!is_done) return PyErr_NoMemory();
    return Py_BuildValue("LLL", static_cast<long long>(total[0]), static_cast<long long>(total[1]),
                         static_cast<long long>(total[2]));
}

// time, starts and ends of some spans, those of others, and where the share of each goes.
PyObject* beside(PyObject*, PyObject* args) {
    PyObject *of_time, *of_nodes[4], *of_share;
    if (!PyArg_ParseTuple(args, "OOOOOO", &of_time, &of_nodes[0], &of_nodes[1], &of_nodes[2], &of_nodes[3],
                          &of_share))
        return nullptr;
    Longs time, share;  // shares are as wide
    Nodes own, others;
    if (!time.take(of_time, PyBUF_SIMPLE) || !own.take(of_nodes[0], of_nodes[1], time.size()) ||
        !others.take(of_nodes[2], of_nodes[3], time.size()) || !share.take(of_share, PyBUF_WRITABLE))
        return nullptr;
    if (share.size() != own.size()) {
        PyErr_SetString(PyExc_ValueError, "spans and shares differ in length");
        return nullptr;
    }
    auto* into = static_cast<double*>(share.view.buf);
    const bool is_done = beside_other_threads([&] { cover(time.data(), own, others, into); });
    if (!is_done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"busy", busy, METH_VARARGS, "How long the first of three sets is on, any of two, any of three."},
    {"beside", beside, METH_VARARGS, "The share of each span that others cover."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_overlaps", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__overlaps() { return PyModule_Create(&module); }
