// SPDX-License-Identifier: Apache-2.0
// Contrasts are checked by tests/report: 4.5 for text, 3 for marks, against the page and against cards.
#include "model/report/style.h"

#include "model/report/markup.h"

namespace orrery::report {
namespace {

// Nothing may be loaded: the policy makes the browser refuse it.
constexpr const char* kPolicy =
    "<meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src "
    "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
    "<meta name=color-scheme content=\"light dark\">\n";

constexpr const char* kLight =
    "color-scheme:light;--bg:#ffffff;--card:#f4f6f8;--fg:#1b1f24;--muted:#57606a;--line:#868f99;"
    "--accent:#0550ae;--c0:#0068a8;--c1:#a65200;--c2:#00705a;--c3:#a32c78;--c4:#655800;"
    "--c5:#5a4fcf;--c6:#b3261e;--c7:#555b61;--c8:#0c5777;--c9:#804421;--c10:#3a7000;--c11:#232a7a;"
    "--c12:#e65d65;--c13:#8d8e2c;--c14:#a37cb5;--c15:#3297a1;--c16:#3589fd;--c17:#54022a;--c18:#"
    "072a01";
constexpr const char* kDark =
    "color-scheme:dark;--bg:#0d1117;--card:#161b22;--fg:#e6edf3;--muted:#a3adb8;--line:#6e7681;"
    "--accent:#79b8ff;--c0:#58a6ff;--c1:#f0a050;--c2:#3fcf9f;--c3:#f07fc0;--c4:#d4c04a;"
    "--c5:#a99cff;--c6:#ff7b72;--c7:#b0b8c0;--c8:#4fd0e0;--c9:#c49a70;--c10:#9fdc5a;--c11:#e6d9ff;"
    "--c12:#ca290b;--c13:#957019;--c14:#aa58d3;--c15:#1f9898;--c16:#1868df;--c17:#786183;--c18:#"
    "147c0c";

// A shadow shows at an edge behind which a table goes on. On paper is what the reader sees: what is folded stays so, its
// figure shows the same.
constexpr const char* kRules = R"css(
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:1rem;background:var(--bg);color:var(--fg);
 font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.2rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.4rem 0;max-width:75ch}
a{color:var(--accent)}
.lead{font-size:1.1rem;background:var(--card);border-left:4px solid var(--accent);padding:.6rem .9rem}
.muted,figcaption,.axis,.legend{color:var(--muted);font-size:.9rem}
nav ul{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1rem}
nav a{display:inline-block;padding:.3rem 0}
figure{margin:1rem 0;break-inside:avoid}figcaption{margin-top:.4rem}
svg{display:block}
svg text{font:13px system-ui,sans-serif;fill:var(--fg)}
.halo{stroke:var(--bg);stroke-width:4px;paint-order:stroke}
.scroll{overflow-x:auto;margin:.5rem 0;background:linear-gradient(var(--bg),var(--bg)) -1px 0/1.6rem 100% no-repeat local,
 linear-gradient(var(--bg),var(--bg)) calc(100% + 1px) 0/1.6rem 100% no-repeat local,
 linear-gradient(to right,var(--line),transparent) left/.8rem 100% no-repeat,
 linear-gradient(to left,var(--line),transparent) right/.8rem 100% no-repeat}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);padding:.2rem 0}
caption span{display:block;position:sticky;left:0;max-width:min(75ch,calc(100vw - 2rem))}
th,td{padding:.25rem .45rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;overflow-wrap:normal}th[scope=col]{vertical-align:bottom}
th.n,td.n{text-align:right}td.n,th[scope=row].n{white-space:nowrap}
.of{display:block;color:var(--muted);font-size:.85em;font-weight:400}
tr.best td,tr.best th{background:var(--card);font-weight:600}
details{margin:.4rem 0}
summary{cursor:pointer;color:var(--accent);padding:.4rem 0}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.bars{display:grid;grid-template-columns:minmax(6rem,14rem) 1fr minmax(4.5rem,auto);gap:.35rem .7rem;align-items:center;font-size:.9rem}
.bar{display:contents}
.bars .v{text-align:right;font-variant-numeric:tabular-nums}
.bars svg{width:100%;height:1.3rem}
.track{fill:var(--card)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.5rem 0}
.legend svg{width:.8rem;height:.8rem;display:inline-block;margin-right:.4rem}
.chart{overflow-x:auto}
.chart>svg{width:100%;min-width:var(--least,34rem);max-width:var(--most,52rem);height:auto}
.grid{stroke:var(--line);stroke-width:1;opacity:.45}
.frame{stroke:var(--muted);stroke-width:1;fill:none}
.limit{stroke:var(--c6);stroke-width:2;stroke-dasharray:6 4}
.under{stroke:var(--bg);stroke-width:5}
.ideal{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:4 4;fill:none}
.interval{stroke:var(--muted);stroke-width:1.5}
.curve{fill:none;stroke-width:2.5;stroke:var(--c0)}
.hollow{fill:none;stroke-width:1.1;pointer-events:all}
.device{fill:var(--card);stroke:var(--line)}
svg text.small{font-size:10.5px}
.load0{stroke:var(--line);stroke-width:1}
.load1{stroke:var(--c0);stroke-width:1.4}
.load2{stroke:var(--c1);stroke-width:2.4}
.load3{stroke:var(--c6);stroke-width:3.6}
.legend svg.key{width:1.6rem}
.plot{display:grid;grid-template-columns:minmax(4.2rem,9rem) 1fr;gap:0 .5rem;padding-top:.75em}
.plot svg{width:100%}
.lanes{display:flex;flex-direction:column;font-size:.8rem;color:var(--muted);text-align:right}
.lanes span{display:block;overflow:hidden;white-space:nowrap;text-overflow:ellipsis}
.sent rect{stroke-width:1;vector-effect:non-scaling-stroke}
.wait,.sent .wait{fill:var(--muted);stroke:none}
.zoomed{background:var(--card);touch-action:pan-y;cursor:grab}
.axis{grid-column:2;display:flex;justify-content:space-between;font-variant-numeric:tabular-nums}
.yaxis{display:flex;flex-direction:column;justify-content:space-between;margin:-.75em 0;text-align:right;color:var(--muted);font-size:.85rem}
.tools{display:none;flex-wrap:wrap;gap:.4rem;align-items:center;margin:.3rem 0}
.js .tools{display:flex}
button{font:inherit;color:var(--fg);background:var(--card);border:1px solid var(--line);border-radius:4px;min-width:2.6rem;min-height:2.6rem;padding:.2rem .7rem;cursor:pointer}
.tip{min-height:1.5em;color:var(--fg);font-size:.9rem}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
td:not(.n){min-width:8rem;overflow-wrap:anywhere}td.name{min-width:6rem}td.layout{min-width:14rem}
@media screen and (min-width:900px){.bars{grid-template-columns:fit-content(20rem) 1fr minmax(4.5rem,auto)}}
@media screen and (max-width:600px){.bars{display:block}.bar{display:grid;grid-template-columns:1fr auto;gap:.1rem .7rem;margin:.5rem 0}
 .bar svg{grid-column:1/-1;grid-row:2}.axis span:nth-child(even){display:none}body{padding:.7rem}
 table{font-size:.82rem}td,th{padding:.25rem .3rem}td:not(.n){min-width:11rem}td.name{min-width:5rem}td.layout{min-width:14rem}
 .plot{grid-template-columns:4.2rem 1fr}.marks>svg{min-width:0}.marks>svg text{font-size:19px}}
@media print{body{max-width:none;font-size:10pt;line-height:1.35}h2{margin-top:1.2rem}.tools,.tip,nav,summary{display:none!important}
 .scroll,.chart{overflow:visible}.scroll{background:none}.chart>svg{min-width:0;max-width:min(var(--most,32rem),32rem)}
 details:not([open]),tr.far{display:none}
 h2,h3,caption,h2+p,p:has(+ul){break-after:avoid}p{max-width:none}.legend,figcaption,footer{break-before:avoid}
 .plot svg[height="300"]{height:150px}.chart>svg{max-height:21rem}#assumptions ul{columns:2}.marks>svg{max-height:19rem;max-width:26rem}
 figure{break-inside:auto;margin:.5rem 0}.bars,.chart,.plot,tr{break-inside:avoid}p,li{orphans:2;widows:2}
 table{font-size:7.5pt;line-height:1.25}td,th{padding:.12rem .2rem}td:not(.n){min-width:3.5rem;overflow-wrap:break-word}#runs:has(h3){columns:2}#runs>h2{column-span:all}thead{break-after:avoid}
 *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

// Zoom: the drawing is stretched, so that a window of time is a change of the view box. Arrows, + and -, 0, drag, wheel with
// Ctrl, two fingers. The texts of marks show below the drawing on hover.
constexpr const char* kScript = R"js(
(function(){'use strict';
document.documentElement.classList.add('js');
function unit(s){var u=[['s',1],['ms',1e-3],['us',1e-6]];for(var i=0;i<3;i++)if(Math.abs(s)>=u[i][1]||i==2)
 return (s/u[i][1]).toPrecision(3)+' '+u[i][0];}
document.querySelectorAll('[data-zoom]').forEach(function(box){
 var svg=box.querySelector('svg.zoomed'),axis=box.querySelectorAll('.axis span'),
 tip=box.querySelector('.tip'),all=svg.viewBox.baseVal.width,h=svg.viewBox.baseVal.height,
 secs=+box.dataset.zoom,x=0,w=all;
 function show(){w=Math.max(all/2000,Math.min(all,w));x=Math.max(0,Math.min(all-w,x));
  svg.setAttribute('viewBox',x+' 0 '+w+' '+h);
  axis.forEach(function(a,i){var f=i/(axis.length-1);a.textContent=(i?'':'from ')+unit((x+w*f)/all*secs);});}
 function zoom(f,at){var c=x+w*at;w*=f;w=Math.max(all/2000,Math.min(all,w));x=c-w*at;show();}
 function act(k){if(k=='+'||k=='=')zoom(.5,.5);else if(k=='-')zoom(2,.5);else if(k=='ArrowLeft'){x-=w/4;show();}
  else if(k=='ArrowRight'){x+=w/4;show();}else if(k=='0'||k=='Home'){x=0;w=all;show();}else return false;return true;}
 box.querySelectorAll('button').forEach(function(b){b.addEventListener('click',function(){act(b.dataset.key);});});
 svg.addEventListener('keydown',function(e){if(!e.ctrlKey&&!e.metaKey&&!e.altKey&&act(e.key))e.preventDefault();});
 svg.addEventListener('wheel',function(e){if(!e.ctrlKey)return;e.preventDefault();
  var r=svg.getBoundingClientRect();zoom(e.deltaY>0?1.25:.8,(e.clientX-r.left)/r.width);},{passive:false});
 var from={};
 svg.addEventListener('pointerdown',function(e){from[e.pointerId]=e.clientX;});
 function gone(e){delete from[e.pointerId];}
 ['pointerup','pointercancel','pointerleave'].forEach(function(n){svg.addEventListener(n,gone);});
 svg.addEventListener('pointermove',function(e){
  var m=e.target.querySelector&&e.target.querySelector('title');if(m&&e.target!=svg)tip.textContent=m.textContent;
  if(!(e.pointerId in from))return;var ids=Object.keys(from),r=svg.getBoundingClientRect();
  if(ids.length==1){x-=(e.clientX-from[e.pointerId])/r.width*w;}
  else if(ids.length==2){var o=from[ids[0]==e.pointerId?ids[1]:ids[0]],b=Math.abs(from[e.pointerId]-o),n=Math.abs(e.clientX-o);
   if(n>8&&b>8){var at=((e.clientX+o)/2-r.left)/r.width,c=x+w*at;w*=b/n;x=c-w*at;}}
  from[e.pointerId]=e.clientX;show();});
});
})();
)js";

std::string Palette() {
  std::string rules;
  for (int i = 0; i < kColours; ++i) {
    const std::string n = std::to_string(i);
    rules += ".c" + n + "{fill:var(--c" + n + ")}.s" + n + ",.sent .c" + n + "{stroke:var(--c" + n +
             ")}";
  }
  return rules;
}

}  // namespace

std::string Head() {
  return std::string(kPolicy) + "<style>\n:root{" + kLight +
         "}\n@media screen and (prefers-color-scheme:dark){:root{" + kDark + "}}" + kRules +
         Palette() + "</style>\n";
}

std::string Script() { return std::string("<script>") + kScript + "</script>\n"; }

}  // namespace orrery::report
