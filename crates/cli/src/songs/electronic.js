function (doc, meta) {
  for(i=0;i<doc.tags.length;i++)
  {
    if(doc.tags[i][0]=="electronic")
      emit(meta.id, doc);
  }
}
