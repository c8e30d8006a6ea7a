/*
** $Id: lstring.c,v 2.8.1.1 2007/12/27 13:02:25 roberto Exp $
** String table (keeps all strings handled by Lua)
** See Copyright Notice in lua.h
*/


#include <string.h>

#define lstring_c
#define LUA_CORE

#include "lua.h"

#include "lmem.h"
#include "lobject.h"
#include "lstate.h"
#include "lstring.h"



void luaS_resize (lua_State *L, int newsize) {
  GCObject **newhash;
  stringtable *tb;
  int i;
  if (G(L)->gcstate == GCSsweepstring)
    return;  /* cannot resize during GC traverse */
  newhash = luaM_newvector(L, newsize, GCObject *);
  tb = &G(L)->strt;
  for (i=0; i<newsize; i++) newhash[i] = NULL;
  /* rehash */
  for (i=0; i<tb->size; i++) {
    GCObject *p = tb->hash[i];
    while (p) {  /* for each node in the list */
      GCObject *next = p->gch.next;  /* save next */
      unsigned int h = gco2ts(p)->hash;
      int h1 = lmod(h, newsize);  /* new position */
      lua_assert(cast_int(h%newsize) == lmod(h, newsize));
      p->gch.next = newhash[h1];  /* chain it */
      newhash[h1] = p;
      p = next;
    }
  }
  luaM_freearray(L, tb->hash, tb->size, TString *);
  tb->size = newsize;
  tb->hash = newhash;
}


static TString *newlstr (lua_State *L, const char *str, size_t l,
                                       unsigned int h) {
  TString *ts;
  stringtable *tb;
  if (l+1 > (MAX_SIZET - sizeof(TString))/sizeof(char))
    luaM_toobig(L);
  ts = cast(TString *, luaM_malloc(L, (l+1)*sizeof(char)+sizeof(TString)));
  ts->tsv.len = l;
  ts->tsv.hash = h;
  ts->tsv.marked = luaC_white(G(L));
  ts->tsv.tt = LUA_TSTRING;
  ts->tsv.reserved = 0;
  memcpy(ts+1, str, l*sizeof(char));
  ((char *)(ts+1))[l] = '\0';  /* ending 0 */
  tb = &G(L)->strt;
  h = lmod(h, tb->size);
  ts->tsv.next = tb->hash[h];  /* chain new entry */
  tb->hash[h] = obj2gco(ts);
  tb->nuse++;
  if (tb->nuse > cast(lu_int32, tb->size) && tb->size <= MAX_INT/2)
    luaS_resize(L, tb->size*2);  /* too crowded */
  return ts;
}


/*
** Penstock: the hash is of all of a string's bytes. Lua
** 5.1.5 looks at every ((l>>5)+1)-th, so that long strings that differ in few
** places share one chain of the table above, and making n of them takes n*n
** comparisons.
**
** Up to LUAS_HASH_OWN_MAX bytes it is what Redis has: Lua's own mixing, with
** each byte. `pairs' and what follows its order (cjson.encode) show it to
** scripts, so it neither changes nor has a seed. Longer strings, which are
** values rather than keys, are mixed by words, ten times as fast.
*/

#define LUAS_HASH_OWN_MAX	128

typedef unsigned long long luaS_word;  /* of 64 bits */

/* odd numbers without a pattern; those of xxHash */
#define LUAS_K1	0x9E3779B185EBCA87ULL
#define LUAS_K2	0xC2B2AE3D27D4EB4FULL
#define LUAS_K3	0x165667B19E3779F9ULL

static luaS_word mixword (luaS_word lane, luaS_word word) {
  lane += word * LUAS_K2;
  lane = (lane << 31) | (lane >> 33);
  return lane * LUAS_K1;
}


/* four lanes, since a multiplication takes the time of several others' */
static void mixstripe (luaS_word *lanes, const char *str) {
  luaS_word words[4];
  int i;
  memcpy(words, str, sizeof(words));
  for (i=0; i<4; i++) lanes[i] = mixword(lanes[i], words[i]);
}


static unsigned int hashlong (const char *str, size_t l) {
  luaS_word lanes[4] = {LUAS_K1, LUAS_K2, LUAS_K3, 0};
  luaS_word h = cast(luaS_word, l) * LUAS_K3;
  size_t at;
  int i;
  for (at=0; l-at > sizeof(lanes); at+=sizeof(lanes)) mixstripe(lanes, str+at);
  mixstripe(lanes, str+l-sizeof(lanes));  /* the rest, and some bytes again */
  for (i=0; i<4; i++) h = (h ^ mixword(0, lanes[i])) * LUAS_K1 + LUAS_K3;
  /* the table uses the lowest bits, which depend on the fewest */
  h = (h ^ (h >> 33)) * LUAS_K2;
  h = (h ^ (h >> 29)) * LUAS_K3;
  return cast(unsigned int, h ^ (h >> 32));
}


static unsigned int luaS_hash (const char *str, size_t l) {
  unsigned int h = cast(unsigned int, l);  /* seed */
  if (l > LUAS_HASH_OWN_MAX) return hashlong(str, l);
  for (; l>0; l--)
    h = h ^ ((h<<5)+(h>>2)+cast(unsigned char, str[l-1]));
  return h;
}


/*
** Penstock: strings' bytes count as instructions, since instructions that make
** long strings take long. Otherwise a loop around `s..s' or a function of the
** library would handle gigabytes before the count hook is called, by which a
** script is looked at that may have to end.
*/

#define LUAS_BYTESPERINSTRUCTION	16

static void charge (lua_State *L, size_t l) {
  size_t count = l / LUAS_BYTESPERINSTRUCTION;
  if ((L->hookmask & LUA_MASKCOUNT) == 0 || L->hookcount <= 1) return;
  if (count < cast(size_t, L->hookcount))
    L->hookcount -= cast_int(count);
  else
    L->hookcount = 1;  /* the next instruction calls the hook */
}


TString *luaS_newlstr (lua_State *L, const char *str, size_t l) {
  GCObject *o;
  unsigned int h = luaS_hash(str, l);  /* Penstock: of all bytes */
  charge(L, l);  /* Penstock */
  for (o = G(L)->strt.hash[lmod(h, G(L)->strt.size)];
       o != NULL;
       o = o->gch.next) {
    TString *ts = rawgco2ts(o);
    if (ts->tsv.len == l && (memcmp(str, getstr(ts), l) == 0)) {
      /* string may be dead */
      if (isdead(G(L), o)) changewhite(o);
      return ts;
    }
  }
  return newlstr(L, str, l, h);  /* not found */
}


Udata *luaS_newudata (lua_State *L, size_t s, Table *e) {
  Udata *u;
  if (s > MAX_SIZET - sizeof(Udata))
    luaM_toobig(L);
  u = cast(Udata *, luaM_malloc(L, s + sizeof(Udata)));
  u->uv.marked = luaC_white(G(L));  /* is not finalized */
  u->uv.tt = LUA_TUSERDATA;
  u->uv.len = s;
  u->uv.metatable = NULL;
  u->uv.env = e;
  /* chain it on udata list (after main thread) */
  u->uv.next = G(L)->mainthread->next;
  G(L)->mainthread->next = obj2gco(u);
  return u;
}

