import time, pytest
from store.filters import Filter
from store.contract import *
from store.events import *
from store.policy import Policy
from store import following, identity, sla
from store.outbox import Limits
from store.open import open_store
from store.operations import Item, settle
from tests.contract.rows import wake, claim, finish, TYPE
from tests.contract.acts import publish
def best(f, n=3):
    t=[]
    for _ in range(n):
        a=time.perf_counter(); f(); t.append(time.perf_counter()-a)
    return min(t)
def spin(store, tag, n, batch=50):
    a=time.perf_counter()
    for b in range(n//batch):
        ws=[wake(f"{tag}{b}-{i}") for i in range(batch)]
        store.wake(ws, notify=False)
        js=[c.job for c in store.claim([claim(w.id) for w in ws])]
        settle(store,[Item(j.id, finish(j), Policy(TYPE), j) for j in js])
    return (time.perf_counter()-a)/n*1e6
def cycle(store):
    n = 1000
    spin(store,"warm",500)
    for rnd in range(2):
        for name, on, lim in (("off",False,False),("on",True,False),("on+sla",True,True)):
            following.switch_events(store,on=on)
            if lim: sla.put(store, TYPE, Limits(queue_latency=60,duration=60))
            else:
                try: sla.remove(store, TYPE)
                except Exception: pass
            print(store.dialect, rnd, "cycle us/job", name, round(spin(store,f"{name}{rnd}",n)), flush=True)
    t=time.perf_counter(); ext=store.extent(); print("number all", ext, time.perf_counter()-t)
    t=time.perf_counter(); c=None; k=0
    while True:
        p=store.events(c,limit=1000); k+=len(p.events); c=p.cursor
        if not p.events: break
    print("read", k, "in", time.perf_counter()-t)
def fill(store, n):
    ty=[f"type.{i}" for i in range(20)]; publish(store,*ty)
    for b in range(n//2000):
        ws=[]
        for i in range(2000):
            j=b*2000+i
            ws.append(wake(str(j), job_type=ty[j%20], queue=("default","high","low")[j%3], delay=0 if j%10 else 3600, payload='{"n":%d,"text":"%s"}'%(j,"x"*100)))
        store.wake(ws, notify=False)
def tallies(store, n):
    t=time.perf_counter(); fill(store,n); print(store.dialect,"fill",n,time.perf_counter()-t, flush=True)
    print(store.dialect,"tally all", best(lambda: store.tally(Filter())))
    print(store.dialect,"tally type", best(lambda: store.tally(Filter(job_type="type.3"))))
    print(store.dialect,"tally queue", best(lambda: store.tally(Filter(queue="low"))))
    print(store.dialect,"tally state", best(lambda: store.tally(Filter(states=("failed",)))), flush=True)
@pytest.mark.timeout(900)
def test_it(store, adapter):
    cycle(store)
    tallies(store, 200_000 if store.dialect!="surreal" else 50_000)
