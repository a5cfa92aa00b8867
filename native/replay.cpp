// The one loop of the replay: raise each edge's head to its tail plus the weight, in order; and the
// replay of steps that follow each other. Their twins in Python are in htk.quantities.graph.replay.
#include "longs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>

namespace {

PyObject* longest(PyObject*, PyObject* args) {
    PyObject *times, *tails, *heads, *weights;
    if (!PyArg_ParseTuple(args, "OOOO", &times, &tails, &heads, &weights)) return nullptr;
    Longs time, src, dst, weight;
    if (!time.take(times, PyBUF_WRITABLE) || !src.take(tails, PyBUF_SIMPLE) ||
        !dst.take(heads, PyBUF_SIMPLE) || !weight.take(weights, PyBUF_SIMPLE))
        return nullptr;
    const Py_ssize_t edges = src.size(), nodes = time.size();
    if (dst.size() != edges || weight.size() != edges) {
        PyErr_SetString(PyExc_ValueError, "tails, heads and weights differ in length");
        return nullptr;
    }
    std::int64_t* at = time.data();
    const std::int64_t *from = src.data(), *to = dst.data(), *by = weight.data();
    const auto count = static_cast<std::uint64_t>(nodes);
    for (Py_ssize_t k = 0; k < edges; ++k) {
        const auto tail = static_cast<std::uint64_t>(from[k]), head = static_cast<std::uint64_t>(to[k]);
        if (tail >= count || head >= count) {
            PyErr_SetString(PyExc_IndexError, "an edge names no node");
            return nullptr;
        }
        std::int64_t reached;
        if (__builtin_add_overflow(at[tail], by[k], &reached)) {
            PyErr_SetString(PyExc_OverflowError, "a time of more than 64 bits");
            return nullptr;
        }
        // Written always: which edge comes last is a guess that a processor loses.
        const std::int64_t before = at[head];
        at[head] = reached > before ? reached : before;
    }
    Py_RETURN_NONE;
}

// The last of the edges that bound a node, then those that bound its tail, back to the beginning: edges
// lie in the order of their heads, so one way back along them meets all. Of several that bound a node
// the first counts. Times, tails, heads, weights, the node, and where the edges go: how many there are.
PyObject* critical(PyObject*, PyObject* args) {
    PyObject *times, *tails, *heads, *weights, *edges_of_path;
    long long last;
    if (!PyArg_ParseTuple(args, "OOOOLO", &times, &tails, &heads, &weights, &last, &edges_of_path)) return nullptr;
    Longs time, src, dst, weight, path;
    if (!time.take(times, PyBUF_SIMPLE) || !src.take(tails, PyBUF_SIMPLE) || !dst.take(heads, PyBUF_SIMPLE) ||
        !weight.take(weights, PyBUF_SIMPLE) || !path.take(edges_of_path, PyBUF_WRITABLE))
        return nullptr;
    if (dst.size() != src.size() || weight.size() != src.size()) {
        PyErr_SetString(PyExc_ValueError, "tails, heads and weights differ in length");
        return nullptr;
    }
    const auto nodes = static_cast<std::uint64_t>(time.size());
    const auto* at = reinterpret_cast<const std::uint64_t*>(time.data());
    const std::int64_t *from = src.data(), *to = dst.data(), *by = weight.data();
    std::int64_t node = last;
    Py_ssize_t many = 0, k = src.size();
    for (Py_ssize_t bound = 0; bound >= 0 && static_cast<std::uint64_t>(node) < nodes;) {
        while (k > 0 && to[k - 1] > node) --k;
        bound = -1;
        for (; k > 0 && to[k - 1] == node; --k) {
            const auto tail = static_cast<std::uint64_t>(from[k - 1]);
            if (tail < nodes && at[tail] + static_cast<std::uint64_t>(by[k - 1]) == at[node]) bound = k - 1;
        }
        if (bound < 0) break;
        if (many == path.size()) {
            PyErr_SetString(PyExc_ValueError, "a path of more edges than there is room for");
            return nullptr;
        }
        path.data()[many++] = bound;
        node = from[bound];
    }
    return PyLong_FromSsize_t(many);
}

enum class Result { done, no_such_node, too_long };

// A graph as its arrays; an edge leads to no earlier node than the edge before it.
struct Steps {
    Longs pinned, src, dst, ends, wrap_src, wrap_dst, weight, wraps;
    bool take(PyObject* const (&from)[8]) {
        Longs* const into[] = {&pinned, &src, &dst, &ends, &wrap_src, &wrap_dst, &weight, &wraps};
        for (int k = 0; k < 8; ++k)
            if (!into[k]->take(from[k], PyBUF_SIMPLE)) return false;
        const bool fits = src.size() == dst.size() && src.size() == weight.size() &&
                          wrap_src.size() == wrap_dst.size() && wrap_src.size() == wraps.size();
        if (!fits) PyErr_SetString(PyExc_ValueError, "arrays of one graph differ in length");
        return fits;
    }
    bool names_nodes() const {
        for (const Longs* nodes : {&ends, &wrap_src, &wrap_dst})
            for (Py_ssize_t k = 0; k < nodes->size(); ++k)
                if (static_cast<std::uint64_t>(nodes->data()[k]) >=
                    static_cast<std::uint64_t>(pinned.size()))
                    return false;
        return true;
    }
};

// One step after one whose last instants came when `seen` says. Of two lanes the first takes the
// weights with `more`, the second those without; they share the way along the edges. Not inlined:
// within `repeat` its loops would have too few registers.
template <int Lanes, bool Checked>
[[gnu::noinline]] Result one_step(const Steps& steps, const std::int64_t* more, const std::int64_t* seen,
                                  std::int64_t* at) {
    const auto nodes = static_cast<std::uint64_t>(steps.pinned.size());
    const std::int64_t* pinned = steps.pinned.data();
    for (std::uint64_t node = 0; node < nodes; ++node)
        for (int lane = 0; lane < Lanes; ++lane) at[Lanes * node + lane] = pinned[node];
    const Py_ssize_t wraps = steps.wraps.size(), edges = steps.src.size();  // read once, not each time round
    for (Py_ssize_t k = 0; k < wraps; ++k)
        for (int lane = 0; lane < Lanes; ++lane) {
            std::int64_t reached;
            if (__builtin_add_overflow(seen[Lanes * k + lane], steps.wraps.data()[k], &reached))
                return Result::too_long;
            std::int64_t& head = at[Lanes * steps.wrap_dst.data()[k] + lane];
            head = std::max(head, reached);
        }
    const std::int64_t *from = steps.src.data(), *to = steps.dst.data(), *by = steps.weight.data();
    for (Py_ssize_t k = 0; k < edges; ++k) {
        const auto tail = static_cast<std::uint64_t>(from[k]), head = static_cast<std::uint64_t>(to[k]);
        if (Checked && (tail >= nodes || head >= nodes)) return Result::no_such_node;
        for (int lane = 0; lane < Lanes; ++lane) {
            std::int64_t weight = by[k], reached;
            if (Lanes == 2 && (lane == 0 ? __builtin_add_overflow(weight, more[k], &weight)
                                         : __builtin_sub_overflow(weight, more[k], &weight)))
                return Result::too_long;
            if (__builtin_add_overflow(at[Lanes * tail + lane], weight, &reached)) return Result::too_long;
            // Written always: which edge comes last is a guess that a processor loses.
            const std::int64_t before = at[Lanes * head + lane];
            at[Lanes * head + lane] = reached > before ? reached : before;
        }
    }
    return Result::done;
}

// Wraps round where the times of a graph are too far apart for 64 bits.
std::int64_t less(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

struct Period {
    std::int64_t first_end, period, last;
    bool steady;
};

// Repeat the step until its period is steady. `first` and `again`: where the times of the first and
// of the last step go, which may be one place.
template <int Lanes>
Result repeat(const Steps& steps, const std::int64_t* more, std::int64_t* seen, std::int64_t low, int passes,
              double steady, std::int64_t* first, std::int64_t* again, Period (&found)[Lanes]) {
    if (!steps.names_nodes()) return Result::no_such_node;
    const std::int64_t* ends = steps.ends.data();
    const Py_ssize_t many = steps.ends.size();
    for (int pass = 0; pass <= passes; ++pass) {
        std::int64_t* at = pass ? again : first;
        const Result result = pass ? one_step<Lanes, false>(steps, more, seen, at)
                                   : one_step<Lanes, true>(steps, more, seen, at);
        if (result != Result::done) return result;
        bool all = pass > 0;
        for (int lane = 0; lane < Lanes; ++lane) {
            std::int64_t end = at[Lanes * ends[0] + lane];
            for (Py_ssize_t k = 1; k < many; ++k) end = std::max(end, at[Lanes * ends[k] + lane]);
            Period& own = found[lane];
            if (pass == 0) {
                own = {end, less(end, low), end, false};
            } else if (!own.steady) {
                const std::int64_t before = own.period;
                own.period = less(end, own.last);
                own.last = end;
                own.steady = std::abs(static_cast<double>(less(own.period, before))) <=
                             steady * static_cast<double>(std::max<std::int64_t>(own.period, 1));
            }
            all = all && own.steady;
        }
        if (all) break;
        for (Py_ssize_t k = 0; k < steps.wrap_src.size(); ++k)
            for (int lane = 0; lane < Lanes; ++lane)
                seen[Lanes * k + lane] = at[Lanes * steps.wrap_src.data()[k] + lane];
    }
    return Result::done;
}

bool failed(Result result) {
    if (result == Result::no_such_node) PyErr_SetString(PyExc_IndexError, "an edge names no node");
    if (result == Result::too_long) PyErr_SetString(PyExc_OverflowError, "a time of more than 64 bits");
    return result != Result::done;
}

// (graph's eight arrays), wrap_seen, low, passes, steady, and where the times of the first and of
// the last step go: the end of the first step, the period, and the last end.
PyObject* repeated(PyObject*, PyObject* args) {
    PyObject *graph[8], *of_seen, *of_first, *of_again;
    long long low;
    int passes;
    double steady;
    if (!PyArg_ParseTuple(args, "(OOOOOOOO)OLidOO", &graph[0], &graph[1], &graph[2], &graph[3], &graph[4],
                          &graph[5], &graph[6], &graph[7], &of_seen, &low, &passes, &steady, &of_first,
                          &of_again))
        return nullptr;
    Steps steps;
    Longs seen, first, again;
    if (!steps.take(graph) || !seen.take(of_seen, PyBUF_WRITABLE) || !first.take(of_first, PyBUF_WRITABLE) ||
        !again.take(of_again, PyBUF_WRITABLE))
        return nullptr;
    const bool fits = seen.size() == steps.wraps.size() && first.size() == steps.pinned.size() &&
                      again.size() == steps.pinned.size() && steps.ends.size() > 0;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "arrays of one graph differ in length");
        return nullptr;
    }
    Period found[1]{};
    Result result;
    Py_BEGIN_ALLOW_THREADS;
    result = repeat<1>(steps, nullptr, seen.data(), low, passes, steady, first.data(), again.data(), found);
    Py_END_ALLOW_THREADS;
    if (failed(result)) return nullptr;
    return Py_BuildValue("LLL", static_cast<long long>(found[0].first_end),
                         static_cast<long long>(found[0].period), static_cast<long long>(found[0].last));
}

// The same of two steps, whose weights are so much more and so much less: both periods.
PyObject* repeated_beside(PyObject*, PyObject* args) {
    PyObject *graph[8], *of_seen, *of_more;
    long long low;
    int passes;
    double steady;
    if (!PyArg_ParseTuple(args, "(OOOOOOOO)OLidO", &graph[0], &graph[1], &graph[2], &graph[3], &graph[4],
                          &graph[5], &graph[6], &graph[7], &of_seen, &low, &passes, &steady, &of_more))
        return nullptr;
    Steps steps;
    Longs first_seen, more;
    if (!steps.take(graph) || !first_seen.take(of_seen, PyBUF_SIMPLE) || !more.take(of_more, PyBUF_SIMPLE))
        return nullptr;
    if (first_seen.size() != steps.wraps.size() || more.size() != steps.weight.size() || !steps.ends.size()) {
        PyErr_SetString(PyExc_ValueError, "arrays of one graph differ in length");
        return nullptr;
    }
    const Py_ssize_t nodes = steps.pinned.size(), wraps = steps.wraps.size();
    std::unique_ptr<std::int64_t[]> at(new (std::nothrow) std::int64_t[2 * nodes]);
    std::unique_ptr<std::int64_t[]> seen(new (std::nothrow) std::int64_t[2 * wraps]);
    if (!at || !seen) return PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < wraps; ++k) seen[2 * k] = seen[2 * k + 1] = first_seen.data()[k];
    Period found[2]{};
    Result result;
    Py_BEGIN_ALLOW_THREADS;
    result = repeat<2>(steps, more.data(), seen.get(), low, passes, steady, at.get(), at.get(), found);
    Py_END_ALLOW_THREADS;
    if (failed(result)) return nullptr;
    return Py_BuildValue("LL", static_cast<long long>(found[0].period), static_cast<long long>(found[1].period));
}

PyMethodDef methods[] = {
    {"repeated", repeated, METH_VARARGS, "Repeat a step until its period is steady."},
    {"repeated_beside", repeated_beside, METH_VARARGS, "Do so with more and with less than its weights."},
    {"critical", critical, METH_VARARGS, "Go back along the edges that bound a node."},
    {"longest", longest, METH_VARARGS, "Raise each head to its tail plus the weight, in place."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_replay", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__replay() { return PyModule_Create(&module); }
