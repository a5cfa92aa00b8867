/* What the parts of the timeline share; `make types` holds the scripts beside this file to it. */
declare namespace htk {
  /** Rank (-1: the recording), section, track, and depth within the track. */
  type Lane = [rank: number, section: string, track: string, depth: number];
  /** Recording, rank, number, start and end of a step. */
  type Step = [recording: number, rank: number, number: number, start: number, end: number];

  interface Node { lane: number; name: string; ranks: number[] }

  /** A recording as the timeline knows it; times in ns from its first event. */
  interface About {
    events: number;
    low: number;
    high: number;
    lanes: Lane[];
    names: string[];
    kinds: Kind[];
    /** Of each name, the place of its kind in `kinds`. */
    kind_of: number[];
    /** Many ranks by their nodes, each with the lane of its strip. */
    nodes: Node[];
    ranks: [rank: number, device: string | null, ...rest: unknown[]][];
    steps: Step[];
    /** Start and end of each recording on the axis. */
    recordings?: [start: number, end: number][];
    /** Empty time that the axis leaves out: its start and end, and those of its break on the axis. */
    cuts?: [start: number, end: number, from: number, upto: number][];
    /** Counters by their lanes, with the scale of each. */
    counters?: Counter[];
    can_align?: boolean;
    can_path?: boolean;
    badges?: string[];
    /** In a page from disk: columns and their planes of bytes, and the first event of each lane. */
    columns?: [name: string, planes: number][];
    parts?: [lane: number, first: number][];
    path?: object;
    [more: string]: any;
  }

  /** A counter as a row; in a page from disk with the points that its value changes at. */
  interface Counter {
    lane: number; name: string; unit: string; low: number; high: number; points?: [times: number[], values: (number | null)[]];
  }

  type Kind = "compute" | "comm" | "memory" | "cpu" | "launch" | "range" | "phase" | "python" | "idle" | "overhead" | "pending";
  /** Fill, border where the fill is pale, and what many of them together look like. */
  type Paint = [fill: string, border?: string, many?: string];
  interface Colours {
    ink: string; soft: string; paper: string; head: string; line: string; band: string; accent: string;
    unrecorded: string; hatch: string; [more: string]: any;
    kinds: Record<Kind, Paint>;
  }
  interface Shade { shades: string[]; border?: string; base: number[]; text: string }

  /** A view's level of detail: long spans one by one, of short ones the share of each cell. */
  interface View {
    head: { cells: number; lanes: number; count: number; merged: boolean; [more: string]: any };
    density: Uint8Array;
    dominant: Uint8Array;
    x: Float32Array;
    w: Float32Array;
    id: Uint32Array;
    name: Uint32Array;
    lane: Uint16Array;
    [more: string]: any;
  }

  interface Arrow { kind: string; from: [lane: number, time: number, id: number]; to: [lane: number, time: number, id: number] }
  interface EventFacts {
    id: number; ref: string; name: string; kind: string; lane: number; rank: number; track: string;
    start: number; end: number; facts: unknown[]; arrows: Arrow[]; pages: unknown[];
  }

  /** Who answers the timeline's questions: a server, a notebook's kernel, or the page itself. */
  interface Source { ask(question: string, given: any): Promise<any> }

  interface Row {
    y: number; h: number; rank: number; lane: number; key: string; label: string; folds: boolean; open: boolean;
    head?: boolean; inner?: boolean; section?: string; depth?: number; pinned?: boolean; counter?: Counter | null;
  }
  interface Track { key: string; rank: number; section: string; track: string; lanes: number[] }
  /** A moment, or a span, and what is said of it. */
  interface Note { start: number; end: number; text: string }
  interface Arrangement { pinned?: string[]; order?: string[]; filter?: string }
  interface Rows {
    list: Row[];
    blocks: { rank: number; gpu: boolean; start: number; end: number }[];
    /** The height of each lane; -1: folded away. */
    at: Float32Array;
    height: number;
    /** The height of those at the top that do not scroll. */
    pinned: number;
  }

  /** What is shown, chosen and asked for: one object, which every part reads. */
  interface State {
    about: About; source: Source; options: Options; folded: Set<string>; rows: Rows;
    view: { start: number; end: number }; goal: { start: number; end: number } | null; scroll: number;
    shown: any; small: any; selected: any; hover: any; range: any; pointer: any; wanted: string; hits: Set<number>;
    pinned: string[]; order: string[]; filterText: string; notes: Note[];
    path: any; aligned: boolean; drag: any; filter: { start: number; end: number } | null;
    colours: Colours; palette: Shade[]; [more: string]: any;
  }
  interface Options {
    aligned?: boolean; dark?: () => boolean; height?: number; start?: any; filter?: any; badges?: string[];
    remember?: (state: any) => void; narrow?: ((start: number, end: number) => void) | null; select?: any;
    [more: string]: any;
  }
  interface Canvas extends HTMLCanvasElement { size: { width: number; height: number; ratio: number } }
  /** The elements that the page is made of. */
  type Parts = Record<string, any> & { canvas: Canvas; small: Canvas; place: HTMLElement; panel: HTMLElement };
  interface Control { S: State; P: Parts; [more: string]: any }

  interface Timeline {
    LIGHT: Colours; DARK: Colours; STRIPES: Kind[]; WORDS: Record<Kind, string>;
    GUTTER: number; LETTERS: number; AXIS: number; LANE: number; HEAD: number; CHART: number; PIN: number; LINKED: string[]; KEYS: [string, string][];
    rgb(hex: string): number[];
    palette(colours: Colours, kinds: Kind[]): Shade[];
    time(ns: number, digits?: number): string;
    moment(ns: number, step: number): string;
    count(n: number): string;
    short(text: string, most: number): string;
    bare(name: string): string;
    unpack(buffer: ArrayBuffer): View;
    ranges(numbers: number[]): string;
    element(tag: string, facts?: Record<string, any>, ...children: any[]): any;
    http(query: string | undefined): Source;
    embedded(about: About, text: string): Promise<Source>;
    mount(place: HTMLElement, source: Source, options?: Options): Promise<any>;
    page(): Promise<void>;
    widget(view: { model: any; el: HTMLElement }): any;
    parts(place: HTMLElement, about: About, options: Options): Parts;
    legend(S: State, place: HTMLElement): void;
    value(value: number, unit: string): string;
    counterTip(S: State, place: HTMLElement, counted: any, x: number, y: number): void;
    tip(S: State, place: HTMLElement, hit: any, x?: number, y?: number): void;
    rankKey(rank: number): string;
    nodeKey(node: Node): string;
    rankRange(ranks: number[]): string;
    unfold(S: State, rank: number): void;
    folded(about: About): Set<string>;
    rows(about: About, folded: Set<string>, arrangement?: Arrangement): Rows;
    rowAt(rows: Rows, y: number): Row | null;
    rowUnder(S: State, screen: number): Row | null;
    screenY(S: State, y: number): number;
    tracks(about: About): Map<string, Track>;
    isTrackOf(track: Track, text: string): boolean;
    pinTrack(control: any, key: string): void;
    moveTrack(control: any, key: string, before: string | null): void;
    filterTracks(control: any, text: string): void;
    dropOf(S: State, key: string, y: number): { line: number | null; before: string | null };
    showTracks(control: any): void;
    showFound(S: State, place: HTMLElement, found: any, act: (name: string) => void): void;
    joined(texts: string[]): string;
    split(text: string | undefined): string[];
    notesText(notes: Note[]): string;
    notesOf(text: string | undefined): Note[];
    setNotes(control: any, notes: Note[]): void;
    noteBands(picture: any): void;
    noteFlags(picture: any): void;
    noteAt(control: any, x: number): Note | null;
    noteHere(control: any): void;
    writeNote(control: any, note: Note): void;
    showNotes(control: any): void;
    isMade(lane: Lane): boolean;
    /** The time at a place of the axis, the place of a time, and how long it is between two places. */
    timeAt(about: About, place: number): number;
    placeOf(about: About, time: number): number;
    lasted(about: About, start: number, end: number): number;
    breaks(about: About, view: { start: number; end: number }): { from: number; upto: number; time: number }[];
    gaps(about: About, rank: number): any;
    listen(control: Control): void;
    pictures(S: State, data: any): void;
    drawBreaks(picture: any, top?: number): void;
    frame(S: State, context: CanvasRenderingContext2D, size: Canvas["size"]): void;
    overview(S: State, context: CanvasRenderingContext2D, size: Canvas["size"]): void;
    hatch(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, colours: Colours): void;
    swatch(S: State, kind: Kind): HTMLElement;
    hint(S: State, place: HTMLElement): void;
    trouble(place: HTMLElement, text: string): void;
    showEvent(S: State, place: HTMLElement, act: any): void;
    showStats(S: State, place: HTMLElement, stats: any, act: any): void;
    showKeys(place: HTMLElement): void;
  }
}

declare var htkTimeline: htk.Timeline;
declare var dash_clientside: any;
declare var Plotly: any;
interface Window {
  dash_clientside: any;
  dashAgGridFunctions: any;
  htkHandle: any;
  htkMountTimeline: () => string;
  [more: string]: any;
}
