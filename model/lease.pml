/*
 * The lease protocol of package leader, as a model for spin: one job at a time,
 * fences that only grow, and, with -DPROGRESS, a lease that is taken again when
 * the faults are over. Run ./check.
 *
 * What is in it: acquire, renew, claim, release, expiry, a row that somebody
 * deletes; messages that are lost, late, or arrive twice; replies that are lost;
 * tasks that pause for any time at any point. What is not: the clocks' drift;
 * different lease durations; reads that take time (a standby sees the row when it
 * looks); the recognition of a lost claim (here it ends the term); ticks; drains.
 *
 * Time. A message takes any time, and so does whatever a task does next; the
 * clock moves when it likes. Only a job does not outlive its deadline: that is
 * the supervisor's part, and package runner's to prove. Ages are ticks since an
 * instant, and stop growing at the lease, so that the state space is finite.
 *
 * Each mistake is a -D switch, for which ./check demands a counterexample. To
 * read one: spin -t -p -g -D... lease.pml
 */

#ifndef N
#define N 2            /* tasks */
#endif
#ifndef FENCES
#define FENCES 3       /* how high the fence may go: bounds the run */
#endif
#ifndef BEATS
#define BEATS 3        /* how many writes the first task may send, */
#endif
#ifndef OTHERS
#define OTHERS BEATS   /* and how many each of the others */
#endif
#define may(i) (i == 0 -> BEATS : OTHERS)

/* Progress (-DPROGRESS): at any instant the faults may end. Messages then arrive
 * and are answered, whoever has something to do does it before the clock moves
 * on, and nobody claims or releases; only one task may be paused for good, the
 * holder or another. Within PATIENCE ticks a task must have launched its job or
 * renewed. That it comes to that is an assertion on the ticks and on the writes;
 * whatever gets stuck before is an invalid end state. */
#ifdef PROGRESS
#ifndef PATIENCE
#define PATIENCE (WAIT + 1)   /* the row may have changed just after a look */
#endif
#define CALM_WRITES 4
bool calm = false;     /* the faults are over */
bool good = false;     /* and the lease is held */
byte paused = N;        /* nobody */
bool looked[N];        /* at this tick */
byte quiet = 0;        /* ticks since the faults ended */
#define is(i, s) (task[i].state == s && i != paused && !good)
#define mayWrite(i) (calm || task[i].n < may(i))
#define mayFence(f) (calm || bounded(f))
#define mayLook(i) (!calm || !looked[i])
#define hasLooked(i) (!calm || looked[i])
#define patient(i) (calm && underWay(i))
#else
#define calm false
#define good false
#define is(i, s) (task[i].state == s)
#define mayWrite(i) (task[i].n < may(i))
#define mayFence(f) bounded(f)
#define mayLook(i) true
#define hasLooked(i) true
#define patient(i) false
#endif
#ifndef LATE
#define LATE 1         /* messages of a task that may be under way at once */
#endif

/* A million, as far as a run can tell: more than anybody can have missed. */
#define JUMP FENCES
#define bounded(f) ((f) % JUMP < JUMP - 1)

#ifndef LEASE
#define LEASE 2        /* ticks: the lease is over when the clock has moved so often */
#endif
#ifdef SHORT_WAIT
#define WAIT (LEASE - 1)
#else
#define WAIT LEASE         /* one clock for all: its drift is not modelled */
#endif
#define CAP LEASE          /* ages from here on are all the same */
#define NOBODY N

/* The row. */
bool exists = false;
byte owner = NOBODY;
byte fence = 0;
byte beatOf = NOBODY;  /* a beat is a task and a number */
byte beat = 0;

/* What the observer knows. */
byte highest = 0;      /* the highest fence that was handed out */
byte launched = 0;     /* the highest that a job was started with */
bool deletedOnce = false;
#ifdef MOVES
byte lastTo = 0;       /* who launched last */
#endif

/* A task. */
mtype = { standing, competing, holding, lost, releasing };
mtype = { none, acquire, renew, claim, release };

typedef Task {
	mtype state;
	byte n;            /* number of the last beat that it used */
	byte mine;         /* the fence that it holds */
	byte known;        /* the highest fence that it ever saw */
	byte sentAge;      /* ticks since the sending of the last write known to be applied */
	byte opAge;        /* ticks since the sending of the write under way */
	byte opBeat;       /* its beat */
	bool job;          /* its job is alive */

	bool seen;         /* it has seen a row */
	bool gone;         /* the row it saw is not there any more */
	bool low;          /* its fence is lower than one that it saw: an old row */
	byte seenOf;       /* the beat that it saw last, */
	byte seenBeat;
	byte seenOwner;
	byte seenFence;
	byte seenAge;      /* and ticks since it was first shown it */
	byte lastAge;      /* ticks since it last saw the row at all */
}
Task task[N];

/* A write on its way: it may be applied at any later time, and may be applied
 * twice. To bound the states, a task has up to LATE of them. */
typedef Message {
	mtype kind;        /* none: no message */
	byte beat;
	byte fence;        /* the condition's, or for acquire: the new one */
	bool create;       /* acquire: on the condition that there is no row */
	byte wantOf;       /* acquire: the beat that the condition demands */
	byte wantBeat;
	byte wantFence;
	byte wantOwner;
	bool repeats;      /* it will arrive once more */
}
Message msg[N * LATE];

/* The reply to a task's write: it knows of one at a time, others are ignored. */
mtype = { nothing, ok, refused };
mtype reply[N];

#define AT(i, k) ((i) * LATE + (k))
#define waitsFor(i, k) (msg[AT(i, k)].kind != none && msg[AT(i, k)].beat == task[i].opBeat)
#define underWay(i) (task[i].opBeat > 0 && (waitsFor(i, 0) || waitsFor(i, LATE - 1)))
#define quietRoad(i) (msg[AT(i, 0)].kind == none && msg[AT(i, LATE - 1)].kind == none)
#if N == 2
#define emptyRoad (quietRoad(0) && quietRoad(1))
#else
#define emptyRoad (quietRoad(0) && quietRoad(1) && quietRoad(2))
#endif
#define older(m, i) (beatOf != i || beat < msg[m].beat)

inline condition(m, i, holds) {
	if
	:: msg[m].kind == acquire && msg[m].create -> holds = !exists
	:: msg[m].kind == acquire && !msg[m].create ->
#if defined(OWNER_ALONE)
		holds = exists && owner == msg[m].wantOwner
#else
		holds = exists && beatOf == msg[m].wantOf && beat == msg[m].wantBeat && fence == msg[m].wantFence
#endif
	:: msg[m].kind == renew || msg[m].kind == claim ->
#if defined(NO_BEAT_ORDER)
		holds = exists && owner == i && fence == msg[m].fence
#else
		holds = exists && owner == i && fence == msg[m].fence && older(m, i)
#endif
	:: msg[m].kind == release ->
#if defined(RELEASE_UNCHECKED)
		holds = exists
#else
		holds = exists && owner == i && fence == msg[m].fence && older(m, i)
#endif
	fi
}

inline drop(m) {
	msg[m].kind = none; msg[m].beat = 0; msg[m].fence = 0; msg[m].create = false; msg[m].repeats = false;
	msg[m].wantOf = 0; msg[m].wantBeat = 0; msg[m].wantFence = 0; msg[m].wantOwner = 0
}

/* The store applies a message, or refuses it. */
inline deliver(m, i) {
	condition(m, i, holds);
	if
	:: holds ->
		if
		:: msg[m].kind == acquire ->
			exists = true; owner = i; fence = msg[m].fence
		:: msg[m].kind == renew -> skip
		:: msg[m].kind == claim -> fence++
		:: msg[m].kind == release ->
#if defined(DELETE_ON_RELEASE)
			exists = false; fence = 0;
#endif
			owner = NOBODY
		fi;
		beatOf = i; beat = msg[m].beat;
		if
		:: (msg[m].kind == acquire || msg[m].kind == claim) && fence > highest -> highest = fence
		:: else
		fi
	:: else
	fi;
	/* The reply, if the task still waits for this one and it is not lost. */
	if
	:: reply[i] == nothing && msg[m].beat == task[i].opBeat && task[i].opBeat > 0 ->
		if
		:: holds -> reply[i] = ok
		:: !holds -> reply[i] = refused
		:: !calm  /* lost */
		fi
	:: else
	fi;
	if
	:: msg[m].repeats -> msg[m].repeats = false
	:: else ->
		drop(m)
	fi;
	holds = false
}

/* A task sends a write. Every one has a beat of its own. */
inline send(i, k, what) {
#ifdef PROGRESS
	assert(task[i].n < may(i) + CALM_WRITES);
#endif
#if defined(SHARED_BEAT)
	if
	:: what == renew && task[i].n > 0 -> skip   /* a retry with the beat of the last */
	:: else -> task[i].n++
	fi;
#else
	task[i].n++;
#endif
	task[i].opBeat = task[i].n;
	task[i].opAge = 0;
	reply[i] = nothing;
	msg[AT(i, k)].kind = what;
	msg[AT(i, k)].beat = task[i].n;
	msg[AT(i, k)].fence = task[i].mine;
	if
	:: what == renew -> msg[AT(i, k)].repeats = true  /* of the others a second copy is like a late one */
	:: msg[AT(i, k)].repeats = false
	fi
}

/* What a standby sees when it looks. A read that shows an older row is a look
 * that came earlier: nothing in the protocol depends on its being fresh. */
inline look(i) {
#ifdef PROGRESS
	looked[i] = calm;
#endif
	if
	:: exists ->
		if
#if defined(TIMED_FROM_LAST_LOOK)
		:: true -> task[i].seenAge = 0
#else
		:: !task[i].seen || task[i].gone || task[i].seenOf != beatOf || task[i].seenBeat != beat ->
			task[i].seenAge = 0
#endif
		:: else
		fi;
		task[i].seen = true; task[i].gone = false; task[i].lastAge = 0;
		task[i].low = (fence < task[i].known);
		task[i].seenOf = beatOf; task[i].seenBeat = beat;
		task[i].seenOwner = owner; task[i].seenFence = fence;
		if
		:: fence > task[i].known -> task[i].known = fence
		:: else
		fi
	:: !exists && task[i].seen && !task[i].gone ->
		task[i].gone = true;
#if defined(VANISHED_FROM_LAST_SEEN)
		task[i].seenAge = task[i].lastAge
#else
		task[i].seenAge = 0
#endif
	:: else
	fi
}

#define room(i) (msg[AT(i, 0)].kind == none || msg[AT(i, LATE - 1)].kind == none)
#define slot(i) (msg[AT(i, 0)].kind == none -> 0 : LATE - 1)
#if defined(GONE_FOR_GOOD)
#define overdue(i) (task[i].seenAge >= WAIT && !task[i].gone)
#else
#define overdue(i) (task[i].seenAge >= WAIT)
#endif
#define mayAcquire(i) (!task[i].seen || (!task[i].gone && !task[i].low && (task[i].seenOwner == NOBODY || task[i].seenOwner == i)) || overdue(i))

#if defined(NO_RECHECK)
#define inTime(i) true
#else
#define inTime(i) (task[i].opAge < LEASE)
#endif

/* A holder looks at nobody's row. Afterwards it has to look again. */
inline forget(i) {
	task[i].gone = false; task[i].low = false; task[i].seenAge = 0;
	task[i].seenOf = NOBODY; task[i].seenBeat = 0; task[i].seenOwner = N + 1; task[i].seenFence = 0
}

/* With progress, a run ends here, and all runs in the same state. */
inline allIsWell() {
#ifdef PROGRESS
	if
	:: calm ->
		good = true; paused = N; quiet = 0;
		exists = false; owner = 0; fence = 0; beatOf = 0; beat = 0; highest = 0; launched = 0; deletedOnce = false;
		s = 0;
		do
		:: s < N ->
			looked[s] = false; reply[s] = nothing;
			task[s].state = standing; task[s].n = 0; task[s].mine = 0; task[s].known = 0; task[s].sentAge = 0; task[s].opAge = 0;
			task[s].opBeat = 0; task[s].job = false; task[s].seen = false; task[s].gone = false; task[s].low = false;
			task[s].seenOf = 0; task[s].seenBeat = 0; task[s].seenOwner = 0; task[s].seenFence = 0; task[s].seenAge = 0;
			s++
		:: else -> break
		od;
		s = 0;
		do
		:: s < N * LATE -> drop(s); s++
		:: else -> break
		od;
		s = 0
	:: else
	fi
#else
	skip
#endif
}

inline launch(i) {
	/* P2, in this order: above all that was launched, and nothing above it handed out. */
	assert(task[i].mine > launched && task[i].mine >= highest);
#ifdef MOVES
	/* Not a promise: reaching it shows that the lease can move to another task. */
	assert(launched == 0 || i == lastTo);
	lastTo = i;
#endif
	launched = task[i].mine;
	task[i].job = true;
	allIsWell()
}

/* Its deadline has come: the job is killed before anything else happens. */
inline lose(i) {
	task[i].state = lost; task[i].sentAge = 0;
	task[i].opBeat = 0; task[i].opAge = 0; reply[i] = nothing;
#if !defined(RELEASE_BEFORE_DEATH)
	task[i].job = false
#endif
}

inline standBy(i) {
#ifdef PROGRESS
	looked[i] = false;
#endif
	task[i].state = standing; task[i].opBeat = 0; task[i].mine = 0; reply[i] = nothing;
	task[i].sentAge = 0; task[i].opAge = 0
}

proctype Contender(byte i) {
	byte s = 0;
	do
	/* Standing by. */
	:: atomic { is(i, standing) && mayLook(i) ->
		look(i) }
	:: atomic { is(i, standing) && hasLooked(i) && mayWrite(i) && room(i) && mayAcquire(i) && mayFence(task[i].known) && !task[i].job ->
		/* One more than was seen; after a deletion, above all that is remembered. */
		task[i].mine = (task[i].gone || task[i].low -> task[i].known + JUMP : (task[i].seen -> task[i].seenFence : 0) + 1);
		s = slot(i);
		msg[AT(i, s)].create = (!task[i].seen || task[i].gone);
		msg[AT(i, s)].wantOf = task[i].seenOf; msg[AT(i, s)].wantBeat = task[i].seenBeat;
		msg[AT(i, s)].wantFence = task[i].seenFence; msg[AT(i, s)].wantOwner = task[i].seenOwner;
		task[i].state = competing;
		send(i, s, acquire); s = 0 }
	/* Competing. */
	:: atomic { is(i, competing) && reply[i] == ok ->
		if
		:: inTime(i) ->
#if defined(DEADLINE_FROM_REPLY)
			task[i].sentAge = 0;
#else
			task[i].sentAge = task[i].opAge;
#endif
			task[i].state = holding;
			task[i].known = task[i].mine;
			task[i].opBeat = 0; task[i].opAge = 0; reply[i] = nothing;
			forget(i);
			launch(i)
		:: else -> lose(i)
		fi }
	:: atomic { is(i, competing) && (reply[i] == refused || (reply[i] == nothing && !patient(i))) ->
		standBy(i) }      /* refused, or given up: a late reply is ignored */
	/* Holding. */
	:: atomic { is(i, holding) && task[i].opBeat == 0 && mayWrite(i) && room(i) ->
		s = slot(i); send(i, s, renew); s = 0 }
	:: atomic { is(i, holding) && !calm && task[i].opBeat == 0 && mayWrite(i) && msg[AT(i, LATE - 1)].kind == none && bounded(task[i].mine) ->
		task[i].job = false;    /* it ended, another is to be launched */
		s = slot(i); send(i, s, claim); s = 0 }
	:: atomic { is(i, holding) && reply[i] == ok && task[i].job ->
#if defined(DEADLINE_FROM_REPLY)
		task[i].sentAge = 0;
#else
		task[i].sentAge = (task[i].opAge < task[i].sentAge -> task[i].opAge : task[i].sentAge);
#endif
		task[i].opBeat = 0; task[i].opAge = 0; reply[i] = nothing;
		allIsWell() }
	:: atomic { is(i, holding) && reply[i] == ok && !task[i].job -> /* a claim */
#if defined(DEADLINE_FROM_REPLY)
		task[i].sentAge = 0;
#else
		task[i].sentAge = (task[i].opAge < task[i].sentAge -> task[i].opAge : task[i].sentAge);
#endif
		task[i].mine++; task[i].known = task[i].mine;
		task[i].opBeat = 0; task[i].opAge = 0; reply[i] = nothing;
		if
		:: task[i].sentAge < LEASE -> launch(i)
		:: else -> lose(i)
		fi }
	:: atomic { is(i, holding) && reply[i] == refused ->
		if
		:: exists && owner == i && fence == task[i].mine && task[i].job -> task[i].opBeat = 0; task[i].opAge = 0; reply[i] = nothing  /* an older one came later */
		:: else -> lose(i)
		fi }
	:: atomic { is(i, holding) && task[i].opBeat > 0 && reply[i] == nothing && !patient(i) ->
		/* no reply. A renewal may have been applied; a claim that may have been
		   is dropped, and the term with it, so as not to model its recognition. */
		if
		:: task[i].job ->
#if defined(SHARED_BEAT)
			if
			:: exists && beatOf == i && beat == task[i].opBeat ->
				task[i].sentAge = (task[i].opAge < task[i].sentAge -> task[i].opAge : task[i].sentAge)
			:: else
			fi;
#endif
			task[i].opBeat = 0; task[i].opAge = 0
		:: else -> lose(i)
		fi }
	/* It is told to stop, or its job has ended: the job dies, then the release. */
	:: atomic { is(i, holding) && !calm && mayWrite(i) && room(i) ->
#if !defined(RELEASE_BEFORE_DEATH)
		task[i].job = false;
#endif
		task[i].state = releasing;
		s = slot(i); send(i, s, release); s = 0 }
	:: atomic { is(i, releasing) ->
		/* answered, or not: it goes on as a standby either way */
		standBy(i) }
	:: atomic { is(i, lost) ->
		standBy(i) }
#if defined(RELEASE_BEFORE_DEATH)
	:: atomic { task[i].job && task[i].state != holding -> task[i].job = false }
#endif
	:: good -> break
	od
}

/* The network delivers whatever is under way, in any order, or loses it. */
proctype Network() {
	bool holds = false;
	byte i, k;
	do
	:: atomic { !good && !emptyRoad ->
		select (i : 0 .. N - 1);
		select (k : 0 .. LATE - 1);
		if
		:: msg[AT(i, k)].kind != none -> deliver(AT(i, k), i)
		:: !calm && msg[AT(i, k)].kind != none ->
			drop(AT(i, k))
		:: else
		fi;
		i = 0; k = 0 }
	:: good -> break
	od
}

#define creating(i) (msg[AT(i, 0)].create || msg[AT(i, LATE - 1)].create)
#define older1(a) a = (a < CAP -> a + 1 : CAP)

#ifdef PROGRESS
/* In calm, time waits for whoever has something to do. */
#define idle(i) (i == paused || (task[i].state == standing && looked[i] && !mayAcquire(i)))
#if N == 2
#define mayTick (!good && (!calm || (emptyRoad && idle(0) && idle(1))))
#else
#define mayTick (!good && (!calm || (emptyRoad && idle(0) && idle(1) && idle(2))))
#endif
#else
#define mayTick true
#endif

/* Time passes for all. A holder whose deadline comes kills its job then: its
 * supervisor sees to it, also while the agent is paused. */
proctype Clock() {
	byte i;
	do
	:: atomic { mayTick ->
		i = 0;
		do
		:: i < N ->
			/* Only what is still looked at grows: the rest would be states for nothing. */
			if
			:: task[i].state == holding -> older1(task[i].sentAge)
			:: else
			fi;
			if
			:: task[i].opBeat > 0 -> older1(task[i].opAge)
			:: else
			fi;
			if
			:: task[i].seen && (task[i].state == standing || task[i].state == competing) -> older1(task[i].seenAge)
			:: else
			fi;
#ifdef VANISHED_FROM_LAST_SEEN
			older1(task[i].lastAge);
#endif
			if
			:: task[i].state == holding && task[i].sentAge >= LEASE -> lose(i)
			:: else
			fi;
#ifdef PROGRESS
			looked[i] = false;
#endif
			i++
		:: else -> break
		od;
#ifdef PROGRESS
		if
		:: calm -> quiet++; assert(quiet <= PATIENCE)
		:: else
		fi;
#endif
		i = 0 }
#ifdef PROGRESS
	:: atomic { !calm ->
		calm = true;
		select (paused : 0 .. NOBODY) }
#endif
	:: good -> break
#ifdef DELETIONS
	:: atomic { !calm && exists && !deletedOnce && task[0].seen && task[1].seen && task[N - 1].seen && !creating(0) && !creating(1) && !creating(N - 1) ->
		/* by hand, and only when every task has seen the row, and no message is
		   under way of one that had not: those can't know, and are the exception
		   that the contract names */
		exists = false; owner = NOBODY; beatOf = NOBODY; beat = 0; fence = 0; deletedOnce = true }
#endif
	od
}

init {
	atomic {
		byte i = 0;
		do
		:: i < N * LATE ->
			msg[i].kind = none;  /* of an mtype no value is 0 */
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < N ->
			task[i].state = standing; task[i].seenOf = NOBODY; task[i].seenOwner = NOBODY; reply[i] = nothing;
			run Contender(i);
			i++
		:: else -> break
		od;
		run Network();
		run Clock()
	}
}

/* P1: one job at a time. */
#if N == 2
#define alone (!(task[0].job && task[1].job))
#else
#define alone (!(task[0].job && task[1].job) && !(task[0].job && task[2].job) && !(task[1].job && task[2].job))
#endif

active proctype Observer() {
	assert(alone)  /* at any time: the step may be taken in every state */
}
