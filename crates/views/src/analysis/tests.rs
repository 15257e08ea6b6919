use super::*;

fn members(names: &[&str], emitted: bool) -> Need {
    Need::Members { names: names.iter().map(|name| (*name).to_owned()).collect(), emitted }
}

#[test]
fn functions_that_do_not_look_at_their_document() {
    for source in [
        "function (doc, meta) { emit(meta.id, null); }",
        "function(){emit(1,2)}",
        "  function named(doc) { /* doc */ emit('doc', \"doc\"); // doc\n }  ",
        "(doc, meta) => emit(meta.doc, /doc[/]doc/.test(meta.id))",
        "function (doc, meta) { var a = meta.doc / 2 / 3; emit(a, `doc`); }",
    ] {
        assert_eq!(need(source), Need::Nothing, "{source}");
    }
}

#[test]
fn functions_that_read_members() {
    let seed = "function (doc, meta) {
        for (i = 0; i < doc.tags.length; i++) {
            if (doc.tags[i][0] == \"electronic\") { emit(meta.id, doc); break; }
        }
    }";
    assert_eq!(need(seed), members(&["tags"], true));
    assert_eq!(
        need("function(d){if(d.type=='x'&&d.a.b){emit(d.a.b.c,d.n)}}"),
        members(&["a", "n", "type"], false)
    );
    assert_eq!(need("d => emit(d.x)"), Need::Whole);
    assert_eq!(need("(d) => emit(d.x, 1)"), members(&["x"], false));
    assert_eq!(need("function(d,m){emit(m.id,d)}"), members(&[], true));
    assert_eq!(need("function(d){emit(d.x/d.y, x.d)}"), members(&["x", "y"], false));
    let both = ["function(d){emit(d.x,1)}", "function(e){emit(e.y,e)}", "function(f){}"];
    assert_eq!(need_of_all(&both.map(str::to_owned)), members(&["x", "y"], true));
    let unclear = ["function(d){emit(d.x,1)}", "function(e){emit(e,1)}"];
    assert_eq!(need_of_all(&unclear.map(str::to_owned)), Need::Whole);
}

#[test]
fn what_is_like_the_unclear_is_clear() {
    let tags = members(&["tags"], false);
    let loops = "function (doc, meta) { if (doc.tags) { for (var i in doc.tags)
        // Not a division.
        emit(doc.tags[i][0], doc.tags.of / 2) } }";
    assert_eq!(need(loops), tags);
    assert_eq!(need("function(d){if(d.a&&d.b.c(1)){emit(d.x,d.y)}}"), members(&["a", "b", "x", "y"], false));
    assert_eq!(need("function(d){emit((d.x),(d.y)?.z)}"), members(&["x", "y"], false));
    assert_eq!(need("function(d){emit(d.x?.y, d.z?.1:2)}"), members(&["x", "z"], false));
    assert_eq!(need("function(d){emit(d.x == 'classical, \\'remitted\\'', 1)}"), members(&["x"], false));
}

#[test]
fn functions_of_many_parameters_get_the_whole_document() {
    let source = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
        format!("function ({}) {{ emit(p0.x, 1); }}", names.join(","))
    };
    assert_eq!(need(&source(16)), members(&["x"], false));
    assert_eq!(need(&source(17)), Need::Whole);
    // To compare each with all others would take minutes.
    assert_eq!(need(&source(65_000)), Need::Whole);
}

#[test]
fn members_of_meta_that_are_read() {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let need = |sources: &[&str]| {
        meta_need_of_all(&sources.iter().map(|source| (*source).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(need(&["function (doc, meta) { emit(meta.id, doc); }"]), names(&["id"]));
    assert_eq!(need(&["function (doc) { emit(doc.meta, 1); }", "() => emit(1, 2)"]), names(&[]));
    let both = ["function (d, m) { emit(m.id, m.type) }", "(d, other) => emit(other.flags, d)"];
    assert_eq!(need(&both), names(&["flags", "id", "type"]));
    for source in [
        "function (doc, meta) { emit(1, meta) }",
        "function (doc, meta) { emit(meta['id'], 1) }",
        "function (doc, meta) { for (var k in meta) emit(k, 1) }",
        "function (doc, meta) { var m = meta; emit(m.id, 1) }",
        "function (doc, meta) { emit(arguments[1].id, 1) }",
        "function (doc, meta) { emit(meta.toString(), 1) }",
        "function (doc, meta) { emit(Object.keys(doc), meta.id) }",
        "function (doc, {id}) { emit(id, 1) }",
    ] {
        assert_eq!(need(&[both[0], source]), None, "{source}");
    }
}

#[test]
fn whatever_is_unclear_gets_the_whole_document() {
    for source in [
        "",
        "_count",
        "function(doc){emit(doc,1)}",
        "function(doc){emit(1,[doc])}",
        "function(doc){emit(1,doc,2)}",
        "function(doc){emit(...doc)}",
        "function(doc){emit(1,...doc)}",
        "function(doc){log(1,doc)}",
        "function(doc){x.emit(1,doc)}",
        "function(doc){var emit=f;emit(1,doc)}",
        "function(doc){function emit(a,doc){} emit(1,doc)}",
        "function(doc){var d=doc;emit(d.x,1)}",
        "function(doc){for(var k in doc)emit(k,1)}",
        "function(doc){emit(doc['x'],1)}",
        "function(doc){emit(doc?.x,1)}",
        "function(doc){with(doc){emit(x,1)}}",
        "function(doc){emit(eval('doc').x,1)}",
        "function(doc){emit(arguments[0].x,1)}",
        "function(doc){emit(this.x,doc.x)}",
        "function(doc){doc.f(1)}",
        "function(doc){emit(doc.hasOwnProperty,1)}",
        "function(doc){emit(doc.toString(),1)}",
        "function(doc){emit(doc.__proto__,1)}",
        "function(doc){emit(doc.constructor,1)}",
        "function(doc){delete doc.x;emit(1,doc)}",
        "function(doc){Array.prototype.toJSON=f;emit(1,doc)}",
        "function(doc){emit(d\\u006fc.x,doc.y)}",
        "function(doc){emit(`${doc.x}`,1)}",
        "function(doc){if(a)/doc/.test(doc.x)}",
        "function(doc){a={}/doc.x/1}",
        "function({x}){emit(x,1)}",
        "function(doc,doc){emit(doc.x,1)}",
        "function(doc=1){emit(doc.x,1)}",
        "function(...doc){emit(doc.x,1)}",
        "function*(doc){emit(doc.x,1)}",
        "async function(doc){emit(doc.x,1)}",
        "function(doc){emit(doc.x,1)}, function(d){emit(d,1)}",
        "(doc)=>1, function(d){emit(d,1)}",
        "(doc)=>1)(1",
        "function(doc){<!--doc\n emit(doc.x,1)}",
        "function(doc){//\u{2028}emit(doc,1)\n}",
        "function(doc){emit(doc.x,'unended)}",
        "function(dock){emit(dock.x,1}",
        "function(é){emit(é.x,1)}",
        "function (doc, meta) { var of = 8; emit(meta.id, of / doc.x / 2); }",
        "function (doc, meta) { var a\n/\"/; emit(meta.id, doc.x); /\"/ }",
        "function (doc, meta) { var a /* \n */ /\"/; emit(meta.id, doc.x); /\"/ }",
        "function (doc, meta) { for (;;) { break\n/\"/; emit(meta.id, doc.x); /\"/ } }",
        "function (doc, meta) { for (;;) { continue\r/\"/; emit(meta.id, doc.x); /\"/ } }",
        "function (doc) { emit(...[], doc) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f)()) }",
        "function (doc) { doc.f = [].concat; emit(1, ((doc.f))()) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f)?.()) }",
        "function (doc) { doc.f = [].concat; emit(1, doc.f?.()) }",
        "function (doc) { doc.f = f; emit(1, (doc.f)`x`) }",
        "function (doc) { [].map['constructor']('e=emit;emit=function(k,v){e(k,[v])}')(); emit(1, doc) }",
        "function (doc) { [].map[`constructor`]; emit(1, doc) }",
        "function (doc) { [].map['\\x63onstructor']; emit(1, doc) }",
        "function (doc) { [].map[/constructor/.source]; emit(1, doc) }",
        "function (doc) { f('e=emit'); emit(1, doc) }",
        "function (doc) { f('\\nemit=e'); emit(1, doc) }",
    ] {
        assert_eq!(need(source), Need::Whole, "{source}");
    }
}
